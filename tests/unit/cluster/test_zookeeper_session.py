"""Tests of the password that is computed for a ZooKeeper session."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ackproof.cluster.metadata.zookeeper import session_password

SOURCE = """
public class Password {
    public static void main(String[] given) {
        for (String each : given) {
            byte[] made = new byte[16];
            new java.util.Random(Long.parseLong(each) ^ 0XB3415C00L).nextBytes(made);
            System.out.println(java.util.HexFormat.of().formatHex(made));
        }
    }
}
"""
SESSIONS = (0, 1, 0x1650_0000_1234_0001, -0x7AAF_FFFF_EDCB_FFFE)


def test_it_has_sixteen_bytes_and_follows_from_the_session() -> None:
    made = [session_password(session) for session in SESSIONS]
    assert {len(each) for each in made} == {16}
    assert len(set(made)) == len(SESSIONS)
    assert session_password(SESSIONS[2]) == made[2]


def test_it_is_what_java_makes(tmp_path: Path) -> None:
    if shutil.which("javac") is None:
        pytest.skip("no Java compiler here; the tests with real servers show the same")
    (tmp_path / "Password.java").write_text(SOURCE, encoding="utf-8")
    subprocess.run(["javac", "Password.java"], cwd=tmp_path, check=True, timeout=60)
    said = subprocess.run(
        ["java", "-cp", ".", "Password", *map(str, SESSIONS)],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert said.stdout.split() == [session_password(session).hex() for session in SESSIONS]
