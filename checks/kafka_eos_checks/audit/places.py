"""The door to every byte that the audit reads: files by their path on this machine, or by URI.

:func:`place` makes a path of what a person gives. A URI becomes a :class:`Uri`, which lists folders and reads files as
a ``Path`` does, through ``pyarrow.fs``. Each process opens its own connection, so the tasks of Spark read from where
the bytes lie, and no more than the range that they judge. Nothing is copied.

Credentials are those of the process that reads: its environment, a profile, the role of its machine, the configuration
of Hadoop. A URI that has any is refused, since URIs are in messages, in findings and in the plans that Spark gets.

Kafka: FileRecords.readInto, which reads segments by position
"""

import errno
import io
import os
import re
import stat
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from itertools import takewhile
from pathlib import Path, PosixPath
from typing import IO, Any, NamedTuple, Self, TypeVar

from kafka_eos_checks.kit.missing import Missing, need

SCHEMES = ("s3", "gs", "abfs", "abfss", "hdfs", "viewfs")
SAME = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}  # other names, of Hadoop and of pyarrow
PIECE_BYTES = 16 << 10  # of an index; brokers reserve 10 MB for it
WINDOW_BYTES = 8 << 20  # asked for at once: the first byte of an answer takes as long as one or two of 80 MB/s
DENIED = re.compile(r"ACCESS_DENIED|Access ?Denied|Forbidden|HTTP status 403|403 |Permission|AccessControlException")
GONE = re.compile(r"NO_SUCH_KEY|RESOURCE_NOT_FOUND")  # between asking for the size and for the bytes
CUT_OFF = "Failed to flush response stream"  # an error whose text is longer than the range that was asked for
BUSY = re.compile(f"{CUT_OFF}|SLOW_DOWN|HTTP status 503")
PAUSES = (0.2, 1, 5)  # seconds before such a range is asked for again
_QUERY = re.compile(r"\?\S+")  # of addresses in what a library says: they may be signed
_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/]*)(?P<path>.*)", re.DOTALL)
_ENDPOINTS, _REGIONS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"), ("AWS_REGION", "AWS_DEFAULT_REGION")
_HADOOP = ("hdfs", "viewfs")
AT_HOME = "default"  # stands for the file system that Hadoop's configuration names
_HDFS_TRIES = "3"  # connections to a NameNode, with pauses that double: the library's default takes three minutes

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Ask = Callable[[Callable[[Item], Answer], Sequence[Item]], list[Answer]]


class Unreachable(OSError):  # noqa: N818 - named for the place
    """A URI that cannot be read; the message says which, why, and the remedy."""


def is_uri(text: str) -> bool:
    """Whether a path or text names another file system than this machine's."""
    return "://" in text


def _of_url(path: str) -> Path:
    from urllib.request import url2pathname  # noqa: PLC0415 - takes as long to import as a tenth of an audit's start

    return Path(url2pathname(path))


def place(text: str) -> Path:
    """The path that a text names: a path of this machine, also as ``file:/`` or ``file://``, or a :class:`Uri`.

    A URI of an object store is taken as it stands, without escapes, as Hadoop does.

    Raises:
        Unreachable: a scheme that is not known, or a URI with a password, a key or a query.
    """
    if not is_uri(text):
        return _of_url(text[len("file:") :]) if text.startswith("file:/") else Path(text)
    found = _URI.fullmatch(text)
    if found is None:
        raise Unreachable(f"{text.partition('://')[0]}://…: no URI; expected SCHEME://PLACE/PATH")
    scheme, authority, path = found["scheme"].lower(), found["authority"], found["path"]
    if scheme == "file":
        return _of_url(path)
    scheme = SAME.get(scheme, scheme)
    user, _, host = authority.rpartition("@")
    named = re.fullmatch(r"[^:?]*(:[0-9]+)?", host)  # otherwise it may be half of a key with a slash in it
    if named is None or ":" in user or (user and scheme == "s3") or "?" in path:
        shown = f"{scheme}://{host}{path}".partition("?")[0] if named else f"{scheme}://…"
        raise Unreachable(
            f"{shown}: it was given with a password, a key or a query, which messages and Spark's plans would show; "
            "leave them out and set the environment (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, …)"
        )
    if scheme not in SCHEMES:
        raise Unreachable(f"{scheme}://{authority}{path}: the scheme is none of {', '.join((*SCHEMES, *SAME, 'file'))}")
    if not authority and scheme not in {"hdfs", "viewfs"}:
        raise Unreachable(f"{scheme}://{path}: no bucket is named; expected {scheme}://BUCKET/PATH")
    return Uri(f"{scheme}://{authority or AT_HOME}{path}")


def ask_here(ask: Callable[[Item], Answer], items: Sequence[Item]) -> list[Answer]:
    """The answers of a function about each item, in this process; an executor's tasks give them otherwise."""
    return [ask(item) for item in items]


class Entry(NamedTuple):
    """The entry of a file or folder in a listing; size in bytes, time in nanoseconds since the epoch."""

    is_folder: bool
    size: int = 0
    changed_ns: int = 0


Listing = Mapping[str, Mapping[str, Entry]]  # by folder and name


class Uri(PosixPath):
    """A URI as a path. Its methods ask ``pyarrow.fs``; methods that would ask the operating system are refused.

    A path that was found in a listing does not ask again.
    """

    _listing: Listing = {}  # noqa: RUF012 - never changed

    def __str__(self) -> str:
        scheme, _, rest = super().__str__().partition("/")
        return f"{scheme}//{rest}"

    def __fspath__(self) -> str:
        raise TypeError(f"{self} is no path of this machine")

    def __truediv__(self, key: "str | os.PathLike[str]") -> Self:
        return self._knowing(super().__truediv__(key))

    @property
    def parent(self) -> Self:
        """The parent folder; a bucket is its own parent."""
        return self if len(self.parts) <= 2 else self._knowing(super().parent)

    def _knowing(self, other: Self) -> Self:
        other._listing = self._listing
        return other

    def resolve(self, strict: bool = False) -> Self:
        """The same path; there are no links to follow."""
        del strict
        return self

    def _where(self) -> tuple[Any, str]:
        """The file system, and the path in it."""
        system, base = _file_system(self.parts[0].removesuffix(":"), self.parts[1])
        return system, "/".join([base.rstrip("/"), *self.parts[2:]]) or "/"

    def listed(self) -> Self:
        """The same path with all that is below it, listed at once; paths made of it do not ask again."""
        if str(self) in self._listing:
            return self
        found = self._list(recursive=True)
        if not found[str(self)]:
            return self  # a file, or nothing
        other = self / ""
        other._listing = found
        return other

    def _list(self, *, recursive: bool) -> dict[str, dict[str, Entry]]:
        fs = need("pyarrow.fs", "spark")
        with _named(self):
            system, path = self._where()
            try:
                infos = system.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=recursive))
            except NotADirectoryError:
                infos = []
        found: dict[str, dict[str, Entry]] = {str(self): {}}
        for info in infos:
            inside = info.path[len(path.rstrip("/")) :].strip("/").split("/")
            folder = self
            for name in inside[:-1]:  # a listing of objects need not have the folders
                found.setdefault(str(folder), {}).setdefault(name, Entry(is_folder=True))
                folder = folder / name
            found.setdefault(str(folder), {})[inside[-1]] = _entry(info)
            if info.type == fs.FileType.Directory:
                found.setdefault(str(folder / inside[-1]), {})
        return found if recursive else {str(self): found[str(self)]}

    def _look_up(self) -> Entry | None:
        if str(self) in self._listing:
            return Entry(is_folder=True)
        siblings = self._listing.get(str(self.parent))
        if siblings is not None:
            return siblings.get(self.name)
        fs = need("pyarrow.fs", "spark")
        with _named(self):
            system, path = self._where()
            info = system.get_file_info(path)
        return None if info.type == fs.FileType.NotFound else _entry(info)

    def iterdir(self) -> Generator[Self, None, None]:
        """The entries of a folder."""
        listing = self._listing if str(self) in self._listing else self._list(recursive=False)
        for name in listing[str(self)]:
            child = self / name
            child._listing = listing
            yield child

    def glob(self, pattern: str) -> Generator[Self, None, None]:
        """The entries of a folder that match a name; with ``**/`` before it, the matching entries anywhere below."""
        name = pattern.removeprefix("**/")
        for child in self.iterdir():
            if child.match(name):
                yield child
            if name != pattern and child.is_dir():
                yield from child.glob(pattern)

    def is_file(self) -> bool:
        """Whether the path is a file."""
        entry = self._look_up()
        return entry is not None and not entry.is_folder

    def is_dir(self) -> bool:
        """Whether the path is a folder."""
        entry = self._look_up()
        return entry is not None and entry.is_folder

    def is_symlink(self) -> bool:
        """Whether the path is a link: never."""
        return False

    def exists(self) -> bool:
        """Whether the path exists."""
        return self._look_up() is not None

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Size and time; the time of an object is when it was put there."""
        del follow_symlinks
        entry = self._look_up()
        if entry is None:
            raise _absent(self)
        mode, changed = stat.S_IFDIR if entry.is_folder else stat.S_IFREG, entry.changed_ns
        seconds = [changed // 1_000_000_000] * 3
        return os.stat_result([mode, 0, 0, 1, 0, 0, entry.size, *seconds, *(changed / 1e9,) * 3, *(changed,) * 3])

    def open(
        self,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> Any:
        """Open the file to read, as ``Path.open`` does."""
        if mode not in {"r", "rb"}:
            raise Unreachable(f"{self}: nothing is written there; give a path of this machine")
        raw = RemoteFile(self)
        if not buffering:
            return raw
        buffered = _ahead(raw, raw.size)
        return buffered if mode == "rb" else io.TextIOWrapper(buffered, encoding or "utf-8", errors, newline)


def listed(path: Path) -> Path:
    """A path with all that is below it; on another file system it is listed at once."""
    return path.listed() if isinstance(path, Uri) else path


def sizes_of(segments: Sequence[Path]) -> list[int]:
    """The sizes of segments, in bytes; see :func:`stats_of`."""
    return [told.st_size for told in stats_of(segments)]


def stats_of(segments: Sequence[Path]) -> list[os.stat_result]:
    """The sizes and times of segments; on another file system a log directory is listed at once.

    Raises:
        OSError: one of them is not there, or cannot be asked for.
    """
    partitions: dict[Path, set[Path]] = {}
    for segment in segments:
        partitions.setdefault(segment.parent.parent, set()).add(segment.parent)
    asked = {directory: listed(directory if len(own) > 1 else own.pop()) for directory, own in partitions.items()}
    known = {
        segment: asked[segment.parent.parent] / segment.relative_to(asked[segment.parent.parent])
        for segment in segments
    }
    return [known[segment].stat() for segment in segments]


def bytes_of(path: Path) -> bytes | None:
    """All bytes of a small file; None if there is none, or a symbolic link, which is never followed."""
    try:
        data = path.read_bytes() if isinstance(path, Uri) or (path.is_file() and not path.is_symlink()) else None
    except FileNotFoundError:
        return None
    count_read_of(path, len(data or b""))
    return data


def written_bytes_of(path: Path) -> bytes | None:
    """As :func:`bytes_of`, but of a file of this machine not all the zeros that a broker reserves at its end."""
    if isinstance(path, Uri) or not path.is_file() or path.is_symlink():
        return bytes_of(path)
    try:
        with path.open("rb", buffering=0) as file:
            pieces = list(takewhile(any, iter(partial(file.read, PIECE_BYTES), b"")))
    except FileNotFoundError:
        return None
    data = b"".join(pieces)
    count_read(len(data))
    return data


def arrow_source(path: Path) -> Any:
    """A file for Arrow to read from."""
    return path.open("rb", buffering=0) if isinstance(path, Uri) else path


# --- how much was read ------------------------------------------------------------------------------------------------

_read = 0


def count_read(size: int) -> None:
    """Count bytes that this process has read."""
    global _read  # noqa: PLW0603 - a counter of the process
    _read += size


def count_read_of(path: Path, size: int) -> None:
    """Count bytes that were read of a file of this machine; files of other file systems count what they answer."""
    if not isinstance(path, Uri):
        count_read(size)


def bytes_read() -> int:
    """Bytes of logs, and of the files next to them, that this process has read since it began."""
    return _read


# --- reading by position ----------------------------------------------------------------------------------------------


class LocalFile:
    """An open file of this machine."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.size = os.fstat(descriptor).st_size

    def pread(self, count: int, at: int) -> bytes:
        """Up to so many bytes from a position on; fewer where the file ends."""
        data = os.pread(self._descriptor, count, at)
        count_read(len(data))
        return data

    def is_zero_from(self, position: int) -> bool:
        """Whether nothing but zeroes follows a position; holes, which hold no bytes, are not read."""
        while position < self.size:
            try:
                position = os.lseek(self._descriptor, position, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # only a hole is left
                    return True
            piece = self.pread(WINDOW_BYTES, position)
            if piece.count(0) < len(piece):
                return False
            position += len(piece) or self.size
        return True

    def fill(self, buffer: memoryview, at: int) -> int:
        """Read from a position on into a buffer; return how many bytes, fewer where the file ends."""
        size = os.preadv(self._descriptor, [buffer], at)
        count_read(size)
        return size


class RemoteFile(io.RawIOBase):
    """An open file of another file system, to read from its beginning or by position.

    Attributes:
        size: bytes.
        ahead: the buffered stream for reads from the beginning; without one each read is a request.
    """

    def __init__(self, uri: Uri) -> None:
        super().__init__()
        self._uri = uri
        self._position = 0
        self.ahead: Window | None = None
        self._file: Any = None
        with _named(uri):
            system, path = uri._where()
            self._file = system.open_input_file(path)
            self.size: int = self._file.size()

    def pread(self, count: int, at: int) -> bytes:
        """Up to so many bytes from a position on; fewer where the file ends.

        Raises:
            Unreachable: the file has become shorter, or there is no answer.
        """
        due = max(min(count, self.size - at), 0)
        if not due:
            return b""
        with _named(self._uri):
            found = self._read_at(due, at)
        count_read(len(found))
        if len(found) < due:
            raise _shorter(self._uri, at + len(found), at + due)
        return found

    def _read_at(self, count: int, at: int) -> bytes:
        """Read a range, again if the store answers with an error that does not fit into it.

        S3's client repeats a request that a busy store refuses, but not where it cannot read the refusal.
        """
        pauses = iter(PAUSES)
        while True:
            try:
                found: bytes = self._file.read_at(count, at)
            except OSError as error:
                pause = next(pauses, None)
                if CUT_OFF not in str(error) or pause is None:
                    raise
                time.sleep(pause)
            else:
                return found

    def readinto(self, buffer: Any) -> int:
        """See ``io.RawIOBase``."""
        data = (self.ahead or self).pread(len(buffer), self._position)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """See ``io.RawIOBase``."""
        self._position = offset + (0, self._position, self.size)[whence]
        return self._position

    def tell(self) -> int:
        """See ``io.RawIOBase``."""
        return self._position

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes."""
        return True

    def close(self) -> None:
        """See ``io.RawIOBase``."""
        if self._file is not None and not self.closed:
            self._file.close()
        super().close()


class Window:
    """A range of a remote file that is read forwards, in large pieces, each byte once.

    Args:
        file: the file.
        end: the end of the range, in bytes. Bytes after it are only read when they are asked for.
    """

    def __init__(self, file: RemoteFile, end: int) -> None:
        self._file = file
        self._end = end
        self._start = 0
        self._held = b""
        self.size = file.size

    def pread(self, count: int, at: int) -> bytes:
        """As :meth:`RemoteFile.pread`."""
        stop = min(at + count, self.size)
        held_to = self._start + len(self._held)
        if not self._start <= at <= stop <= held_to:
            kept = self._held[at - self._start :] if self._start <= at < held_to else b""
            missing = at + len(kept)
            piece = self._file.pread(max(stop, min(missing + WINDOW_BYTES, self._end)) - missing, missing)
            self._start, self._held = at, kept + piece
        return self._held[at - self._start : max(stop, at) - self._start]

    def fill(self, buffer: memoryview, at: int) -> int:
        """As :meth:`LocalFile.fill`."""
        data = self.pread(len(buffer), at)
        buffer[: len(data)] = data
        return len(data)


@contextmanager
def open_at(path: Path, end: int | None = None) -> Iterator[LocalFile | Window]:
    """Open a file to read by position, for as long as the block lasts.

    Args:
        path: the file.
        end: where reading ends, in bytes; the end of the file when not given.

    Raises:
        OSError: the file cannot be opened, or, of another file system, is shorter than ``end``. (A file of this machine
            may become shorter: a broker cuts off what it had reserved.)
    """
    if not isinstance(path, Uri):
        with path.open("rb", buffering=0) as opened:
            yield LocalFile(opened.fileno())
        return
    with RemoteFile(path) as file:
        end = file.size if end is None else end
        if file.size < end:
            raise _shorter(path, file.size, end)
        yield Window(file, end)
        size = path.stat().st_size  # pyarrow's S3 fills up what the store has no more, with anything
        if size < end:
            raise _shorter(path, size, end)


def open_range(path: Path, end: int) -> IO[bytes]:
    """Open a file to read lines of a range that ends at a byte; the last one may be longer."""
    return _ahead(RemoteFile(path), end) if isinstance(path, Uri) else path.open("rb")


def _ahead(raw: RemoteFile, end: int) -> io.BufferedReader:
    raw.ahead = Window(raw, end)
    return io.BufferedReader(raw)


# --- file systems -----------------------------------------------------------------------------------------------------


@cache
def _file_system(scheme: str, authority: str) -> tuple[Any, str]:
    """The file system of a bucket or a cluster, one in each process, and the path of its root."""
    fs = need("pyarrow.fs", "spark")
    if scheme == "s3":
        return _s3(fs, authority), authority
    if scheme in _HADOOP:
        return fs.PyFileSystem(fs.FSSpecHandler(_hdfs(scheme, authority))), ""
    system, base = fs.FileSystem.from_uri(f"{scheme}://{authority}/")
    return system, str(base)


def _s3(fs: Any, bucket: str) -> Any:
    """The S3 of a bucket: at the address in the environment, otherwise Amazon's, in the set region or the bucket's.

    pyarrow takes keys, profiles and roles from where Amazon's own tools do, but no address.
    """
    scheme, _, address = next(filter(None, map(os.environ.get, _ENDPOINTS)), "").rpartition("://")
    if address:
        return fs.S3FileSystem(endpoint_override=address.rstrip("/"), scheme=scheme or "https")
    told = any(map(os.environ.get, _REGIONS))
    return fs.S3FileSystem(region=None if told else fs.resolve_s3_region(bucket))


def _hdfs(scheme: str, authority: str) -> Any:
    """The HDFS of a NameNode, of a name service, or of Hadoop's configuration.

    The library needs no JVM. It reads the configuration in ``HADOOP_CONF_DIR``, or in ``HADOOP_HOME/etc/hadoop``.
    """
    native = need("hdfs_native.fsspec", "hdfs")
    base: Any = native.ViewfsFileSystem if scheme == "viewfs" else native.HdfsFileSystem

    class Dated(base):  # type: ignore[misc] # a class of a library without types
        """The file system with the times of files where Arrow looks for them."""

        def info(self, path: str, **more: Any) -> dict[str, Any]:
            return _dated(super().info(path, **more))

        def ls(self, path: str, detail: bool = True, **more: Any) -> list[Any]:
            found = super().ls(path, detail, **more)
            return list(map(_dated, found)) if detail else found

    if authority == AT_HOME:
        return Dated()
    host, _, port = authority.rpartition("@")[2].partition(":")
    return Dated(host, int(port), **{"dfs.client.failover.max.attempts": _HDFS_TRIES}) if port else Dated(host)


def _dated(info: dict[str, Any]) -> dict[str, Any]:
    return {**info, "mtime": info["modification_time"] / 1000}


def _entry(info: Any) -> Entry:
    return Entry(not info.is_file, info.size or 0, info.mtime_ns or 0)


def _shorter(uri: Path, size: int, before: int) -> Unreachable:
    return Unreachable(f"{uri}: {size} bytes, where there were {before}; audit a copy to which nobody writes")


def _absent(uri: Uri) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "nothing there; is the name right, or was it deleted meanwhile?", str(uri))


@contextmanager
def _named(uri: Uri) -> Iterator[None]:
    """Turn errors of the file system into errors that name the URI and the remedy."""
    try:
        yield
    except FileNotFoundError:
        raise _absent(uri) from None
    except Unreachable:
        raise
    except (OSError, ValueError, RuntimeError) as error:
        if isinstance(error, Missing):
            raise
        reason = _QUERY.sub("?…", (str(error).splitlines() or [type(error).__name__])[0])
        if GONE.search(reason):
            raise _absent(uri) from None
        raise Unreachable(f"{uri}: {reason}; {_remedy(uri, reason)}") from None


def _remedy(uri: Uri, reason: str) -> str:
    if uri.parts[0].removesuffix(":") in _HADOOP and AT_HOME in uri.parts[1:2]:
        return "name the NameNode (hdfs://HOST:PORT/PATH), or set HADOOP_CONF_DIR to the folder with core-site.xml"
    if DENIED.search(reason):
        more = " (s3:ListBucket, s3:GetObject)" if uri.parts[0] == "s3:" else ""
        return f"the credentials of the process that reads need the right to list and to read{more}"
    if BUSY.search(reason):
        return "the store refused it several times, and is probably too busy: try again later, or with fewer processes"
    return "look at the address, the network, and the credentials of the process that reads"
