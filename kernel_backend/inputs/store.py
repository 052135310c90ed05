"""Read objects of a remote store in the version that a submission listed, and say in a sentence why that fails."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from pathlib import PurePosixPath
from typing import Any, NamedTuple, TypeVar

from kernel_backend.data.objects import version_of
from kernel_backend.errors import InvalidRequest
from kernel_backend.retry import RetryPolicy, exponential

PIECE = 2**20  # bytes
RETRY = RetryPolicy(exponential(0.5, 30.0), limit=600.0)
_T = TypeVar("_T")


class Reader(NamedTuple):
    """Who reads a store, in sentences for the user, and how they get credentials."""

    name: str
    way_out: str


TRAINING = Reader(
    "the training",
    "set them where it runs, such as AWS_ACCESS_KEY_ID in the service's or the pool's environment, or give its pods an "
    "identity of the cloud",
)
MACHINE = Reader("this machine", "set variables such as AWS_ACCESS_KEY_ID, or a profile in ~/.aws/credentials")


class Wanted(NamedTuple):
    """Object of a remote store, as it was when a submission listed it."""

    path: str  # in its store: `bucket/train/a.jpg`
    size: int  # bytes
    version: str  # ETag, generation or the like


class Changed(InvalidRequest):
    """Error: the object has another version now than at the submission, or is gone, as its store says."""


class RemoteStore:
    """Store of a URL's objects, read with the credentials of this process; thread-safe."""

    def __init__(self, url: str, retry: RetryPolicy = RETRY, *, reader: Reader = TRAINING) -> None:
        """Connect to the store of a URL; raise InvalidRequest if that needs a package that is missing."""
        self._url, self._retry, self._reader = url, retry, reader
        try:
            import fsspec

            settings: dict[str, Any] = {"use_listings_cache": False, "skip_instance_cache": True}
            if url.startswith(("s3://", "s3a://")):  # s3fs retries a little, and this class for longer
                settings["config_kwargs"] = {"retries": {"total_max_attempts": 1}}
            self._fs, root = fsspec.core.url_to_fs(url, **settings)
        except ImportError as error:
            raise InvalidRequest(
                f"{url} needs a package that the Python of {reader.name} lacks: {error}: pip install "
                "'daylight[remote]', and s3fs (s3://), gcsfs (gs://), adlfs (abfs://) or huggingface_hub (hf://)"
            ) from None
        self.root = root.rstrip("/")

    def address(self, path: str) -> str:
        """Return the address of an object, by which it is known on this node."""
        return f"{self._url.partition('://')[0]}://{path}"

    def credentials(self) -> str:
        """Return a digest of the credentials with which this process reads; "" if they are unknown."""
        if not hasattr(self._fs, "call_s3"):
            return ""
        from fsspec.asyn import sync

        try:
            key, secret = sync(self._fs.loop, self._of_s3)
        except Exception:  # a read will tell what is wrong
            return ""
        return blake2b(f"{self._fs.endpoint_url} {key} {secret}".encode(), digest_size=16).hexdigest()

    async def _of_s3(self) -> tuple[str, str]:
        if self._fs.key and self._fs.secret:
            return self._fs.key, self._fs.secret
        await self._fs.set_session()
        found = await (await self._fs.session.get_credentials()).get_frozen_credentials()
        return found.access_key, found.secret_key

    def is_object(self, name: str) -> bool:
        """Return whether the store's URL is that of one object of this name, rather than of a folder."""
        return PurePosixPath(self.root).name == name and bool(self._fs.isfile(self.root))

    def listed(self, most: int) -> list[Wanted]:
        """Return the objects below the URL, at least so many if there are; raise InvalidRequest if there are none."""
        found = self._tried(Wanted(self.root, 0, ""), partial(self._listed, most))
        return [Wanted(str(each["name"]), int(each.get("size") or 0), version_of(each)) for each in found]

    def _listed(self, most: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        try:
            if hasattr(self._fs, "call_s3"):  # a folder of one store may have millions
                from fsspec.asyn import sync

                found = sync(self._fs.loop, self._fs._lsdir, self.root, max_items=most, delimiter="")
            else:
                for _, _, files in self._fs.walk(self.root, detail=True):
                    found += files.values()
                    if len(found) >= most:
                        break
            found = found or [self._fs.info(self.root)] if found or self._fs.isfile(self.root) else []
        except FileNotFoundError:
            raise InvalidRequest(f"{self._url}: there is no such bucket or container: look at its name") from None
        if not found:
            raise InvalidRequest(f"{self._url}: there is no object below it: look at its name")
        return found

    def beginning(self, wanted: Wanted, most: int) -> bytes:
        """Return the first bytes of an object, at most so many; raise InvalidRequest if it cannot be read."""
        end = min(most, wanted.size)
        return self._tried(wanted, lambda: bytes(self._fs.cat_file(wanted.path, start=0, end=end))) if end else b""

    def check(self, wanted: Wanted) -> None:
        """Check that this process may read an object, and that it has the wanted version.

        Raises Changed if it has another, and InvalidRequest if it cannot be read.
        """
        self._tried(wanted, lambda: self._same(wanted))

    def download(self, wanted: Wanted, told: Callable[[int], None], file: int) -> None:
        """Write the wanted version of an object to a descriptor; `told` is called with the bytes of each piece.

        What was written before an error is withdrawn, with a negative number of bytes. Raises Changed if the store has
        another version now, and InvalidRequest if the object cannot be read or this node's disk cannot hold it.
        """
        self._tried(wanted, partial(self._download, wanted, told, file))

    def _download(self, wanted: Wanted, told: Callable[[int], None], file: int) -> None:
        os.ftruncate(file, 0)
        os.lseek(file, 0, os.SEEK_SET)
        try:
            if hasattr(self._fs, "call_s3"):
                from fsspec.asyn import sync

                sync(self._fs.loop, self._from_s3, wanted, told, file)
            else:
                self._plainly(wanted, told, file)
        except BaseException:
            told(-os.lseek(file, 0, os.SEEK_CUR))
            raise

    async def _from_s3(self, wanted: Wanted, told: Callable[[int], None], file: int) -> None:
        """Download with one request, which names the version, so that it cannot be answered with another."""
        bucket, key, _ = self._fs.split_path(wanted.path)
        version = f'"{wanted.version}"'
        answer = await self._fs._call_s3("get_object", Bucket=bucket, Key=key, IfMatch=version, **self._fs.req_kw)
        async with answer["Body"] as body:
            while piece := await body.read(PIECE):
                _write(file, piece)
                told(len(piece))

    def _plainly(self, wanted: Wanted, told: Callable[[int], None], file: int) -> None:
        """Download between two looks at the object's version."""
        self._same(wanted)
        with self._fs.open(wanted.path, "rb", block_size=8 * PIECE, cache_type="readahead") as source:
            while piece := source.read(PIECE):
                _write(file, piece)
                told(len(piece))
        self._same(wanted)

    def _same(self, wanted: Wanted) -> None:
        if (version := version_of(self._fs.info(wanted.path))) != wanted.version:
            raise Changed(
                f"{self.address(wanted.path)} was replaced since this was submitted: it was {wanted.version}, now "
                f"{version}"
            )

    def _tried(self, wanted: Wanted, act: Callable[[], _T]) -> _T:
        """Do something, again after errors that may pass; raise InvalidRequest for others, with the reason."""

        def once() -> _T:
            try:
                return act()
            except FileNotFoundError:
                raise Changed(f"{self.address(wanted.path)} is gone since this was submitted") from None
            except InvalidRequest:
                raise
            except Exception as error:  # stores have error classes of their own
                if reason := _settled(error, self._reader):
                    raise InvalidRequest(f"{self.address(wanted.path)} cannot be read: {reason}") from error
                if isinstance(error, OSError) and error.errno == errno.EINVAL and wanted.version:
                    self._same(wanted)  # S3 refuses what is asked of another version
                raise

        try:
            return self._retry.call(once, unless=InvalidRequest)
        except InvalidRequest:
            raise
        except Exception as error:
            said = error or type(error).__name__
            raise InvalidRequest(
                f"{self.address(wanted.path)} cannot be read: {said}: look at its address, and at the network"
            ) from error


def _settled(error: Exception, reader: Reader) -> str:
    """Return why a retry is useless, in words for the user; "" if it may help."""
    name, said = type(error).__name__, str(error) or type(error).__name__
    if name in ("NoCredentialsError", "PartialCredentialsError"):
        return f"{said}: {reader.name} has no credentials for this store: {reader.way_out}"
    if isinstance(error, PermissionError):
        if "request time" in said.lower():
            return f"{said}: the clock of this node is wrong: set it"
        return f"{said}: the credentials of {reader.name} may not read it, or have expired: renew them"
    return ""


def _write(file: int, piece: bytes) -> None:
    view = memoryview(piece)
    try:
        while view:
            view = view[os.write(file, view) :]
    except OSError as error:
        raise InvalidRequest(f"the disk of this node's cache: {error.strerror or error}") from error
