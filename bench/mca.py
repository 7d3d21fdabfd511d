"""Estimates the hot loops on processors that are not at hand, with llvm-mca.

    python bench/mca.py            # a table for docs/x86.md

It compiles the kernels with the flags of CMakeLists.txt, cuts the loops out of the assembly, and
lets llvm-mca estimate how many cycles a processor takes for one iteration, if all data is in its
first-level cache and every branch is predicted. Neoverse N1 is for comparison: its times were
measured.

It needs these packages of Debian: g++, g++-x86-64-linux-gnu (on x86-64: g++-aarch64-linux-gnu) and
llvm-19, the first that knows both Neoverse N1 and Zen 4.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

NATIVE = Path(__file__).parents[1] / "native"
MCA = "llvm-mca-19"
ROUNDS = 200

AVX2 = ("-mavx2", "-mpopcnt", "-mbmi", "-mbmi2")
AVX512 = (*AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vpopcntdq",
          "-mprefer-vector-width=512")  # fmt: skip
FLAGS = {
    "kernels_neon.cpp": ("-mtune=neoverse-n1",),
    "kernels_dotprod.cpp": ("-march=armv8.2-a+dotprod",),
    "kernels_scalar.cpp": (),
    "kernels_avx2.cpp": AVX2,
    "kernels_avx512.cpp": AVX512,
}


@dataclass(frozen=True)
class Loop:
    """A loop of a function: the one with this many instructions of a kind, itself or inside it."""

    file: str
    function: str  # a pattern of its name
    instruction: str
    count: int
    units: float  # that one iteration does
    repeated: int = 0  # how often its inner loop runs in one iteration


@dataclass(frozen=True)
class Row:
    """One job, and the loop that does it on each instruction set."""

    job: str
    unit: str
    loops: dict[str, Loop]


PROCESSORS = {  # the instruction set, and the name in llvm-mca
    "Neoverse N1": ("neon", "neoverse-n1"),
    "Skylake": ("avx2", "skylake"),
    "Ice Lake": ("avx512", "icelake-server"),
    "Zen 4": ("avx512", "znver4"),
}

SCAN = Loop("kernels_avx2.cpp", r"signs_of_each<", "vpshufb", 8, 32, repeated=4)
DOTS = Loop("kernels_avx2.cpp", r"dots\(", "vpmovsxbw", 9, 1)
TILE = Loop("kernels_avx2.cpp", r"dots_of_tile<4ul, 2ul>", "vpmovsxbw", 6, 1)
FIND = Loop("kernels_avx2.cpp", r"find_fields<.*Avx2, 11, false>", "vpminub", 8, 4)

PLAIN = Loop("kernels_scalar.cpp", r"dots\(", "pmullw", 2, 1 / 8)

TABLE = (
    Row(
        "Hamming, one query, 128 bits",
        "a code",
        {
            "neon": Loop("kernels_neon.cpp", r"row_long<1, false, .*Write8>", "cnt", 16, 16),
            "avx2": Loop("kernels_avx2.cpp", r"row<unsigned char>", "popcntq", 2, 1),
            "avx512": Loop("kernels_avx512.cpp", r"row_avx512<unsigned char>", "vpermt2q", 2, 8),
        },
    ),
    Row(
        "Hamming, 64 queries by lookups, 64 bits",
        "a code",
        {
            "neon": Loop("kernels_neon.cpp", r"find_fields<.*Neon, 9, false>", "umin", 16, 4),
            "avx2": FIND,
            "avx512": FIND,
        },
    ),
    Row(
        "scan of signs, 128 bits",
        "a row",
        {
            "neon": Loop("kernels_neon.cpp", r"signs_of_queries", "tbl", 8, 32, repeated=8),
            "avx2": SCAN,
            "avx512": SCAN,
        },
    ),
    Row(
        "products of bytes, one vector",
        "128 products",
        {
            "neon": Loop("kernels_dotprod.cpp", r"dots\(", "sdot", 8, 1),
            "avx2": DOTS,
            "avx512": DOTS,
        },
    ),
    Row(
        "products of bytes, several vectors",
        "128 products",
        {
            "neon": Loop("kernels_dotprod.cpp", r"dots\(", "sdot", 16, 2),
            "avx2": TILE,
            "avx512": TILE,
        },
    ),
    Row(
        "the same by a loop, for machines without AVX2",
        "128 products",
        {"avx2": PLAIN, "avx512": PLAIN},
    ),
)


def compiler(machine: str) -> str:
    return f"{machine}-linux-gnu-g++"


def machine_of(file: str) -> str:
    return "aarch64" if file in {"kernels_neon.cpp", "kernels_dotprod.cpp"} else "x86_64"


@cache
def assembly(file: str) -> list[str]:
    """Instructions and labels, with names as in the source."""
    machine = machine_of(file)
    command = [compiler(machine), "-std=c++17", "-O3", "-fPIC", *FLAGS[file], "-S", "-o", "-"]
    text = run([*command, str(NATIVE / file)])
    lines = []
    for line in run(["c++filt"], text).splitlines():
        code = line.split("//")[0].strip() if machine == "aarch64" else line.split("#")[0].strip()
        if code and not re.match(r"\.(?!L)", code):
            lines.append(code)
    return lines


def run(command: list[str], text: str = "") -> str:
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        sys.exit(f"{command[0]} is missing; see the beginning of {__file__}")
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return done.stdout


def body_of(file: str, function: str) -> list[str]:
    lines = assembly(file)
    (first,) = [
        at
        for at, line in enumerate(lines)
        if re.match(rf"[a-z ]*densehash::(\(anonymous namespace\)::)?{function}.*:$", line)
    ]
    end = next(
        at
        for at in range(first + 1, len(lines) + 1)
        if at == len(lines) or (lines[at].endswith(":") and not lines[at].startswith(".L"))
    )
    return lines[first + 1 : end]


def loops_of(body: list[str]) -> list[tuple[int, int]]:
    """The lines of each loop, from its label to the jump back."""
    labels = {line[:-1]: at for at, line in enumerate(body) if line.endswith(":")}
    found = set()
    for at, line in enumerate(body):
        target = line.split()[-1].split(",")[-1]
        if re.match(r"(j|b|cb|tb)", line) and labels.get(target, at) < at:
            found.add((labels[target], at))
    return sorted(found)


def instructions(lines: list[str]) -> list[str]:
    """The instructions without calls, which happen only if something was found, which is rare."""
    return [line for line in lines if not re.match(r".*:$|call|bl\s", line)]


def text_of(loop: Loop) -> str:
    body = body_of(loop.file, loop.function)
    loops = loops_of(body)

    def matches(first: int, last: int) -> int:
        names = [line.split()[0] for line in instructions(body[first:last])]
        return sum(name == loop.instruction for name in names)

    inner = [
        (first, last)
        for first, last in loops
        if matches(first, last) == loop.count
        and not any(first < f and g < last and matches(f, g) for f, g in loops)
    ]
    if not inner:
        found = [(matches(*one), one) for one in loops]
        sys.exit(f"{loop.function} has no loop with {loop.count} {loop.instruction}: {found}")
    first, last = min(inner, key=lambda one: one[1] - one[0])
    if not loop.repeated:
        return "\n".join(instructions(body[first : last + 1]))
    outer = min(
        ((f, g) for f, g in loops if f <= first and last < g and g - f > last - first),
        key=lambda one: one[1] - one[0],
    )
    # Other loops beside the inner one process remainders, which do not occur here.
    beside = [(f, g) for f, g in loops if outer[0] < f and g < outer[1] and (g < first or last < f)]
    kept = [
        line
        for at, line in enumerate(body[: outer[1] + 1])
        if at >= outer[0] and not first <= at <= last and not any(f <= at <= g for f, g in beside)
    ]
    cut = sum(
        outer[0] <= at < first and not any(f <= at <= g for f, g in beside) for at in range(first)
    )
    whole = kept[:cut] + body[first : last + 1] * loop.repeated + kept[cut:]
    return "\n".join(instructions(whole))


def cycles(loop: Loop, processor: str) -> float:
    """Cycles of one iteration on a processor."""
    machine = machine_of(loop.file)
    text = run(
        [MCA, f"-mtriple={machine}-linux-gnu", f"-mcpu={processor}", f"-iterations={ROUNDS}"],
        text_of(loop),
    )
    (total,) = re.findall(r"^Total Cycles: +(\d+)", text, re.M)
    return int(total) / ROUNDS / loop.units


def main() -> None:
    print("| cycles for | " + " | ".join(PROCESSORS) + " |")
    print("| --- |" + " ---: |" * len(PROCESSORS))
    for row in TABLE:
        cells = [
            f"{cycles(row.loops[simd], name):.2f}" if simd in row.loops else ""
            for simd, name in PROCESSORS.values()
        ]
        print(f"| {row.job}: {row.unit} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
