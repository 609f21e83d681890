"""A stand-in for GitHub's `gh api`: comments of an issue in a JSON file, listed, created and updated.

Accepts the calls of `action.yml` and refuses all others. `GH_COMMENTS` names the file. `GH_REFUSES=1` refuses to write,
as GitHub does for a token of a fork. `--jq` is done by jq."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

LISTED = "repos/shop/orders/issues/7/comments"
"""Path of the API for the comments of pull request 7."""
COMMENT = "repos/shop/orders/issues/comments/"


def main(words: list[str]) -> int:
    file = Path(os.environ["GH_COMMENTS"])
    comments = json.loads(file.read_text("utf-8")) if file.exists() else []
    assert words.pop(0) == "api"
    assert os.environ["GH_TOKEN"] == "token"
    path = next(word for word in words if word.startswith("repos/") or word == "user")
    method = words[words.index("--method") + 1] if "--method" in words else "GET"
    if path == "user" or (method != "GET" and os.environ.get("GH_REFUSES")):
        print('{"message": "Resource not accessible by integration"}')
        print("gh: Resource not accessible by integration (HTTP 403)", file=sys.stderr)
        return 1
    if method == "GET":
        assert path == LISTED
        jq = ["jq", "-r", words[words.index("--jq") + 1]]
        return subprocess.run(jq, input=json.dumps(comments), text=True, check=False).returncode
    field = words[words.index("-F") + 1]
    body = Path(field.removeprefix("body=@")).read_text("utf-8")
    assert len(body) <= 65_536, "GitHub refuses a longer comment"
    if method == "POST":
        assert path == LISTED
        comments.append(
            {"id": len(comments) + 1, "body": body, "user": {"type": "Bot", "login": "github-actions[bot]"}}
        )
    else:
        assert method == "PATCH"
        (comment,) = [one for one in comments if path == f"{COMMENT}{one['id']}"]
        comment["body"] = body
    file.write_text(json.dumps(comments), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
