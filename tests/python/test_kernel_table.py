"""The table of kernels for CUDA: families joined over processes, sums and maxima."""

from kernel_table import KernelTable, Usage

LINES = """
sm_75 sm_90
loops 1 40 0
products 2 90 12 1 64 0
all 2 90 12 2 64 0
"""


def test_what_processes_found_is_joined():
    one, other = KernelTable(), KernelTable()
    one.note("products", 75, [Usage(1, 90, 4, 32), Usage(1, 40, 8, 16)])
    other.note("products", 90, [Usage(1, 64, 0, 0)])
    other.note("loops", 90, [Usage(1, 40, 0, 0)])
    one.merge(KernelTable.of_json(other.to_json()))
    head, *lines = str(one).splitlines()
    assert head.endswith("number, most registers, bytes of spills")
    assert [line.split() for line in lines] == [line.split() for line in LINES.split("\n")[1:-1]]
    assert one.rows["products"][75] == Usage(2, 90, 12, 32)
