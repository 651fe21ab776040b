"""A whole experiment as one file: code, params, data, models, metrics, runs; and back again.

The archive is a tar of manifest.json (with the sha256 of everything else), code.bundle (git),
runs.json (MLflow's runs), journal.json (when, where and by whom) and objects/ (DVC's cache, named
by md5). It opens without any remote.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coattail.config import parse_yaml
from coattail.data.archives import extract
from coattail.errors import DataError, DownloadError
from coattail.files import atomic_file
from coattail.pipeline import stage_result
from coattail.progress import progress
from coattail.tracking import delivery, journal
from coattail.tracking.import_runs import dump
from coattail.tracking.store import KIND, RESULT, open_store, outages, unused

FORMAT = "coattail-experiment-2"
OPENS = (FORMAT, "coattail-experiment-1")
MANIFEST, CODE, RUNS, JOURNAL = "manifest.json", "code.bundle", "runs.json", "journal.json"
PUBLISHED = "data/published.json"
REF = "refs/coattail/export"
MD5 = re.compile(r"^[0-9a-f]{32}(\.dir)?$")
CHUNK = 1 << 20


@dataclass(frozen=True)
class Exported:
    """What went into an archive."""

    commit: str
    name: str
    objects: int
    runs: int
    size: int


# --- write ---------------------------------------------------------------------------------------


def export(archive: Path, revision: str | None = None, without: Sequence[str] = ()) -> Exported:
    """Write a revision, a DVC experiment or (None) the workspace as it is now to ``archive``.

    ``without`` names outputs to leave out (data/raw): the archive is smaller, and `dvc repro` in
    the opened project then wants `--allow-missing`.
    """
    commit, name = _resolve(revision)
    wanted, left = _outputs(commit, without)
    cache = Path(_dvc("cache", "dir")) / "files" / "md5"
    objects = _objects(wanted, cache)
    experiment = _experiment(objects.get(wanted.get(PUBLISHED, "")))
    runs = _runs(wanted, experiment)
    with _bundle(commit) as bundle:
        members: dict[str, Path | bytes] = {CODE: bundle, RUNS: _json(runs)}
        members[JOURNAL] = _json(_journal(wanted, objects, experiment))
        members |= {f"objects/{md5}": path for md5, path in objects.items()}
        manifest = {
            "format": FORMAT,
            "name": name,
            "commit": commit,
            "without": sorted(left),
            "files": {
                member: {"sha256": _sha256(content), "size": _size(content)}
                for member, content in members.items()
            },
        }
        archive.parent.mkdir(parents=True, exist_ok=True)
        mode = "w:gz" if archive.name.endswith("gz") else "w"
        with atomic_file(archive) as path, tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
            everything: dict[str, Path | bytes] = {MANIFEST: _json(manifest), **members}
            with progress("export", len(everything), "files") as bar:
                for member, content in everything.items():
                    _add(tar, member, content)
                    bar.advance()
    return Exported(commit, name, len(objects), len(runs), archive.stat().st_size)


def _resolve(revision: str | None) -> tuple[str, str]:
    """The commit to export and what people call it."""
    if _git("rev-parse", "--is-shallow-repository") == "true":
        raise DataError("this clone has no history; complete it first: git fetch --unshallow")
    if revision is None:
        # Files that were written again as they were (dvc.lock) would make `stash create` fail.
        _git("update-index", "-q", "--refresh", fail=False)
        # A commit of the tree as it is, dvc.lock and metrics of the last repro included.
        return _git("stash", "create") or _git("rev-parse", "HEAD"), "workspace"
    refs = _git("for-each-ref", "--format=%(refname)", "refs/exps").split()
    experiments = [ref for ref in refs if ref.endswith(f"/{revision}")]
    for name in [*experiments[-1:], revision]:
        found = _git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", fail=False)
        if found:
            return found, revision
    raise DataError(f"there is no experiment or git revision {revision!r} here; see dvc exp show")


def _outputs(commit: str, without: Sequence[str]) -> tuple[dict[str, str], set[str]]:
    """md5 by path of what DVC's cache holds of a commit, and the paths left out of it."""
    text = _git("show", f"{commit}:dvc.lock", fail=False)
    if not text:
        raise DataError(f"{commit[:10]} has no dvc.lock, so no results; run make repro and commit")
    in_git = set(_git("ls-tree", "-r", "--name-only", commit).splitlines())
    wanted: dict[str, str] = {}
    left: set[str] = set()
    for stage in parse_yaml(text, Path("dvc.lock"))["stages"].values():
        for out in stage.get("outs", []):
            path = out["path"]
            if any(one == path or one.startswith(f"{path}/") for one in in_git):
                continue  # metrics: git has them
            if any(path == part or path.startswith(f"{part.rstrip('/')}/") for part in without):
                left.add(path)
            else:
                wanted[path] = out["md5"]
    unknown = [part for part in without if not any(p.startswith(part.rstrip("/")) for p in left)]
    if unknown:
        raise DataError(f"--without {unknown[0]}: the experiment has no such output")
    return wanted, left


def _objects(wanted: dict[str, str], cache: Path) -> dict[str, Path]:
    """Files of DVC's cache by md5, folders with what they hold."""
    found: dict[str, Path] = {}
    for path, md5 in sorted(wanted.items()):
        parts = [md5]
        if md5.endswith(".dir"):
            entries = json.loads(_object(cache, md5, path).read_text())
            parts += [entry["md5"] for entry in entries]
        found |= {part: _object(cache, part, path) for part in parts}
    return dict(sorted(found.items()))


def _object(cache: Path, md5: str, path: str) -> Path:
    file = cache / md5[:2] / md5[2:]
    if not file.exists():
        raise DataError(
            f"{path} ({md5}) is not in DVC's cache; fetch it first: dvc pull, or leave it out: "
            f"--without {path}"
        )
    return file


def _experiment(published: Path | None) -> str | None:
    """Where in MLflow these results are shown."""
    return str(json.loads(published.read_text())["experiment"]) if published else None


def _runs(wanted: dict[str, str], experiment: str | None) -> list[dict[str, Any]]:
    """MLflow's runs of these results, if the store has them."""
    if experiment is None or unused():
        return []
    md5 = wanted[PUBLISHED]
    try:
        store = open_store(experiment)
        shows = [f"tags.`{RESULT}` = '{md5}'", f"tags.`{KIND}` = 'parent'"]
        found = store.search(*shows, "attributes.status = 'FINISHED'", most=1)
        return dump(store, found[0].info.run_id) if found else []
    except outages():
        return []


def _journal(
    wanted: dict[str, str], objects: dict[str, Path], experiment: str | None
) -> dict[str, Any]:
    """When, where and by whom these results were made, as this project or its store knows it."""
    records = {}
    for path, md5 in wanted.items():
        if Path(path).parent == stage_result.RUNS or Path(path) in stage_result.LATE.values():
            with suppress(DataError):  # left by a version that kept times in it
                result = stage_result.StageResult.load(objects[md5])
                records[path] = journal.record_of(result)
    if experiment is not None:
        delivery.recall(records, experiment)
    entries = {md5: journal.entry(md5) for md5 in wanted.values()}
    return {md5: json.loads(path.read_text()) for md5, path in entries.items() if path.exists()}


def _keep_journal(entries: dict[str, Any], folder: Path) -> None:
    for md5, content in entries.items():
        if not MD5.match(md5):
            raise DataError(f"{JOURNAL} has an entry {md5!r}, which is no md5")
        with atomic_file(folder / f"{md5}.json") as path:
            path.write_bytes(_json(content))


@contextmanager
def _bundle(commit: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / CODE
        _git("update-ref", REF, commit)
        try:
            _git("bundle", "create", "-q", str(path), REF)
        finally:
            _git("update-ref", "-d", REF)
        yield path


def _add(tar: tarfile.TarFile, member: str, content: Path | bytes) -> None:
    info = tarfile.TarInfo(member)
    info.size, info.mode = _size(content), 0o644
    if isinstance(content, bytes):
        tar.addfile(info, io.BytesIO(content))
    else:
        with open(content, "rb") as file:
            tar.addfile(info, file)


# --- read ----------------------------------------------------------------------------------------


def open_archive(archive: Path, folder: Path) -> dict[str, Any]:
    """Make ``folder`` a project with everything of ``archive``; return its manifest.

    The folder appears only when all of it is there and every checksum is right.
    """
    archive, folder = archive.resolve(), folder.resolve()  # git and DVC work inside the folder
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(f"{folder} is not empty; name a folder that does not exist")
    if not archive.is_file():
        raise DataError(f"there is no file {archive}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as temporary:
        parts, project = Path(temporary) / "parts", Path(temporary) / "project"
        manifest = _unpack(archive, parts)
        _build(project, parts, manifest)
        if folder.exists():
            folder.rmdir()
        os.rename(project, folder)
    return manifest


def _unpack(archive: Path, parts: Path) -> dict[str, Any]:
    """All members as flat files in ``parts``, checked against the manifest."""
    again = "ask for it again, or export it again"
    try:
        path = extract(archive, {MANIFEST: MANIFEST}, parts)[MANIFEST]
        manifest: dict[str, Any] = json.loads(path.read_text())
        files: dict[str, dict[str, Any]] = manifest["files"]
        if manifest["format"] not in OPENS:
            raise DataError(f"{archive.name} is {manifest['format']}; this version opens {FORMAT}")
        for member in files:
            named = member.removeprefix("objects/")
            if member not in (CODE, RUNS, JOURNAL) and not MD5.match(named):
                raise DataError(f"{archive.name} lists {member!r}, which is no part of an export")
        wanted = {member: member.rsplit("/", 1)[-1] for member in files}
        total = sum(int(one["size"]) for one in files.values()) + path.stat().st_size
        extract(archive, wanted, parts, largest=total)
    except DownloadError as error:
        reason = str(error).split(";")[0]
        raise DataError(f"{archive.name} is no whole export: {reason}; {again}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{archive.name}: manifest.json is damaged ({error}); {again}") from None
    for member, one in files.items():
        if _sha256(parts / wanted[member]) != one["sha256"]:
            raise DataError(f"{archive.name}: {member} is damaged (wrong checksum); {again}")
    return manifest


def _build(project: Path, parts: Path, manifest: dict[str, Any]) -> None:
    project.mkdir()
    _git("init", "-q", "-b", "main", cwd=project)
    _git(
        "fetch",
        "-q",
        str(parts / CODE),
        f"{REF}:refs/remotes/export/{_word(manifest)}",
        cwd=project,
    )
    _git("checkout", "-q", "-B", "main", manifest["commit"], cwd=project)
    cache = project / ".dvc" / "cache" / "files" / "md5"
    for member in manifest["files"]:
        if member.startswith("objects/"):
            md5 = member.removeprefix("objects/")
            (cache / md5[:2]).mkdir(parents=True, exist_ok=True)
            shutil.move(parts / md5, cache / md5[:2] / md5[2:])
    kept = project / ".dvc" / "tmp" / "coattail"
    kept.mkdir(parents=True, exist_ok=True)
    shutil.move(parts / RUNS, kept / "exported-runs.json")
    if JOURNAL in manifest["files"]:
        _keep_journal(json.loads((parts / JOURNAL).read_text()), kept / "journal")
    # The committed config may name a cache that only the sender's machine has.
    _dvc("cache", "dir", "--local", ".dvc/cache", cwd=project)
    _dvc("checkout", "--force", "--allow-missing", cwd=project)


def _word(manifest: dict[str, Any]) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", str(manifest["name"])).strip("-") or "experiment"


# --- small things --------------------------------------------------------------------------------


def _json(content: Any) -> bytes:
    return (json.dumps(content, indent=1, sort_keys=True) + "\n").encode()


def _size(content: Path | bytes) -> int:
    return len(content) if isinstance(content, bytes) else content.stat().st_size


def _sha256(content: Path | bytes) -> str:
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    digest = hashlib.sha256()
    with open(content, "rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _git(*words: str, cwd: Path | None = None, fail: bool = True) -> str:
    return _run(["git", *words], cwd, fail)


def _dvc(*words: str, cwd: Path | None = None) -> str:
    return _run([sys.executable, "-m", "dvc", *words], cwd, True)


def _run(words: list[str], cwd: Path | None, fail: bool) -> str:
    # Names of this project's folders in the environment must not lead git or DVC elsewhere.
    env = {k: v for k, v in os.environ.items() if not k.startswith(("DVC_ROOT", "GIT_DIR"))}
    done = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True)
    if done.returncode and fail:
        told = (done.stderr or done.stdout).strip().split("\n")[-1]
        raise DataError(f"{' '.join(words[-4:])}: {told}")
    return done.stdout.strip()
