"""The rooms of the library depend on lower ones only, and the check that says so finds what it should."""

from pathlib import Path

import check_includes
import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_no_room_includes_a_higher_one():
    assert check_includes.check(ROOT) == []


def test_every_room_has_a_rank():
    rooms = {path.name for path in (ROOT / "libmooncake").iterdir() if path.is_dir()}
    assert rooms - set(check_includes.RANK) <= {"compat"}


def plant(root: Path, file: str, include: str) -> list[str]:
    header = root / "libmooncake" / "os" / "socket.h"
    header.parent.mkdir(parents=True)
    header.touch()
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"/* planted */\n#include {include}\n", encoding="utf-8")
    return check_includes.check(root)


@pytest.mark.parametrize(
    ("file", "include"),
    [
        ("libmooncake/base/a.c", '"os/socket.h"'),
        ("libmooncake/wire/a.h", '"net/connection.h"'),
        ("libmooncake/metadata/a.c", '"topology/a.h"'),
        ("libmooncake/transports/shm/a.c", '"transports/tcp/tcp.h"'),
        ("libmooncake/transports/a.c", '"transfer/engine.h"'),
        ("libmooncake/store/owner/a.c", '"os/loop.h"'),
        ("libmooncake/store/owner/a.c", '"store/master/index.h"'),
        ("libmooncake/transfer/a.c", '"api/handles.h"'),
        ("libmooncake/compat/a.c", '"base/list.h"'),
        ("libmooncake/base/a.c", '"list.h"'),
        ("libmooncake/base/a.c", "<os/socket.h>"),
        ("libmooncake/base/a.c", '"mooncake/error.h"'),
        ("include/mooncake/a.h", '"base/list.h"'),
        ("include/mooncake/a.h", "<sys/types.h>"),
    ],
)
def test_a_planted_include_is_found(tmp_path: Path, file: str, include: str):
    found = plant(tmp_path, file, include)
    assert len(found) == 1
    assert found[0].startswith(f"{file}:2: ")


@pytest.mark.parametrize(
    ("file", "include"),
    [
        ("libmooncake/net/a.c", '"wire/frame.h"'),
        ("libmooncake/transports/shm/a.c", '"transports/transport.h"'),
        ("libmooncake/transports/shm/a.c", '"transports/shm/page.h"'),
        ("libmooncake/store/owner/a.c", '"wire/message.h"'),
        ("libmooncake/store/a.c", '"store/owner/owner.h"'),
        ("libmooncake/programs/a.c", '"api/handles.h"'),
        ("libmooncake/base/a.c", "<sys/mman.h>"),
        ("libmooncake/base/a.c", "<net/if.h>"),
        ("libmooncake/base/a.c", "<mooncake/error.h>"),
        ("include/mooncake/a.h", "<stdint.h>"),
    ],
)
def test_a_downward_include_is_fine(tmp_path: Path, file: str, include: str):
    assert plant(tmp_path, file, include) == []
