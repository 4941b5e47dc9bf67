"""
The compiled part of the `kvstore` package.
"""

from . import codec as codec
from _typeshed import SupportsGetItem
from collections.abc import Coroutine, Generator, Iterator
from kvstore.types import Blocks, Bodies, Bytes, Costs, ExtraKeys, Keys, Lengths, Parents, Paths, Places, Seconds, Size, TokenIds, Weights, Writable
from os import PathLike
from pathlib import Path
from typing import Any, SupportsFloat, SupportsIndex, final
from typing_extensions import CapsuleType

__all__ = ["Answers", "Architecture", "ArenaRange", "Batch", "Blake3", "Explanation", "FieldDifference", "Group", "Keyed", "KeyedLease", "KeyedMatch", "Layout", "Lease", "Mirror", "Namespace", "Plan", "ResumePlan", "Status", "Statuses", "Store", "Trace", "Usage", "View", "Worker", "architectures", "capacity_blocks", "check", "clear_namespaces", "close_all", "existing_limits", "inspect", "keep", "open", "parse_size", "read_trace", "records", "resume_plan", "simulate", "trace_info", "usage_tokens", "codec"]

@final
class Answers:
    """
    One answer per block: a sequence of "mirror", "host", "disk" and reasons of misses.
    """
    def __getitem__(self, index: SupportsIndex, /) -> str: ...
    def __iter__(self, /) -> Iterator[str]: ...
    def __len__(self, /) -> int: ...
    def __repr__(self, /) -> str: ...
    def count(self, /, answer: str) -> int:
        """
        How many blocks have this answer.
        """

@final
class Architecture:
    """
    One architecture of the registry: what is known about it, and its layouts by form.
    """
    def __repr__(self, /) -> str: ...
    @property
    def after(self, /) -> str | None:
        """
        The predecessor that its factors are compared with.
        """
    @property
    def aliases(self, /) -> list[str]:
        """
        Other names of the same cache.
        """
    @property
    def confidence(self, /) -> str:
        """
        "H", "M" or "L": how sure they are.
        """
    @property
    def counterfactual(self, /) -> bool:
        """
        Not a model that was released.
        """
    @property
    def default_form(self, /) -> str:
        """
        The form that stands for it in tables.
        """
    @property
    def family(self, /) -> str:
        """
        Family.
        """
    @property
    def forms(self, /) -> list[tuple[str, str]]:
        """
        Forms and their sources.
        """
    @property
    def layers(self, /) -> int:
        """
        Layers of the model, draft layers left out.
        """
    def layout(self, /, form: str | None = None, *, draft: bool = False) -> Layout:
        """
        Its layout in a form, the default one when None. With draft=True the groups of draft (MTP)
        layers are included.
        """
    @property
    def mechanism(self, /) -> str:
        """
        Attention mechanism in a few words.
        """
    @property
    def name(self, /) -> str:
        """
        Name.
        """
    @property
    def released(self, /) -> str:
        """
        Day of release, year first; empty when not known.
        """
    @property
    def source(self, /) -> str:
        """
        Where the numbers are from.
        """
    @property
    def title(self, /) -> str:
        """
        Name as people write it.
        """
    @property
    def weights(self, /) -> tuple[float, float, str] | None:
        """
        Weights as (parameters in billions, bytes per parameter, source), where known.
        """

@final
class ArenaRange:
    """
    The memory of the host tier that views are in, for cudaHostRegister only: its bytes belong to
    the engine. Made by `store.arena_range`; holding it keeps the memory mapped, also after the
    store was closed.
    """
    @property
    def address(self, /) -> int:
        """
        Address of the first byte.
        """
    @property
    def nbytes(self, /) -> int:
        """
        Length in bytes.
        """
    @property
    def read_only(self, /) -> bool:
        """
        Whether the memory is mapped for reading only: in a "shared" arena.
        """

@final
class Batch:
    """
    The answers of one put or prefetch. It can be waited for, polled, selected on, or awaited:
    `statuses = await batch`.
    """
    def __await__(self, /) -> Generator[Any, None, Statuses]: ...
    def __len__(self, /) -> int:
        """
        Number of items.
        """
    def __repr__(self, /) -> str: ...
    def cancel(self, /) -> None:
        """
        Gives up on what is not on its way yet: those items become "cancelled", the others settle by
        themselves.
        """
    @property
    def done(self, /) -> bool:
        """
        Whether every item has its answer.
        """
    def fileno(self, /) -> int:
        """
        A descriptor that is readable once every item has its answer; it lives as long as the batch.
        """
    @property
    def items(self, /) -> list[tuple[str, int]]:
        """
        What the items are, in order: ("body", block), ("window", block), ("checkpoint", tokens);
        in a keyed put ("body", index of the key).
        """
    @property
    def status(self, /) -> Statuses:
        """
        The answers so far, one per item.
        """
    def wait(self, /, timeout: Seconds | None = None) -> bool:
        """
        Waits until every item has its answer, for up to timeout seconds (60 when None). True if
        all have.
        """

@final
class Blake3:
    """
    A BLAKE3 hash of bytes that come in pieces. The interpreter is free while a piece is hashed.
    """
    def __new__(cls, /) -> Blake3: ...
    def digest(self, /) -> bytes:
        """
        The 32 bytes of the hash of all that was added.
        """
    def update(self, /, data: Bytes) -> None:
        """
        Adds the bytes of an object: a bytes-like one, an array or a CPU tensor, C-contiguous.
        """

@final
class Explanation:
    """
    Why a prompt hits no more than it does. Asking counts no look-up.
    """
    def __repr__(self, /) -> str: ...
    def __str__(self, /) -> str:
        """
        All of it in one sentence.
        """
    @property
    def block(self, /) -> int | None:
        """
        The first block that cannot be used; None when every whole block can.
        """
    @property
    def differs(self, /) -> list[FieldDifference]:
        """
        Fields in which the nearest namespace with objects differs, where this one has none.
        """
    @property
    def matched(self, /) -> int:
        """
        Tokens whose entries are stored without a hole.
        """
    @property
    def reason(self, /) -> str | None:
        """
        Why: the reason of a miss.
        """
    @property
    def tokens(self, /) -> int:
        """
        Tokens of the prompt.
        """
    @property
    def usable(self, /) -> int:
        """
        Tokens from which the prompt can go on.
        """

@final
class FieldDifference:
    """
    A field of the namespace description that differs.
    """
    def __eq__(self, value: object, /) -> bool: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __repr__(self, /) -> str: ...
    @property
    def field(self, /) -> str:
        """
        Name of the field; "axes.tp" and "extra.rope" name the entry.
        """
    @property
    def here(self, /) -> str:
        """
        Its value in this namespace, as text.
        """
    @property
    def there(self, /) -> str:
        """
        Its value in the other one.
        """

@final
class Group:
    """
    Layers of a model that keep the same kind of cache, and the bytes of one entry.

    kind is "entries" (needed from token 0), "window" (with window=w: the rows of the last w - 1
    tokens) or "state" (valid at one token only). record is the bytes of one entry and layer, or a
    list of planes when the page holds all values first and all scales after. layers are the owner
    layers. heads is the number of key-value heads that split the group over ranks, 0 = replicated.
    reads are (layers, most) pairs: so many layers read at most so many entries in a decode step,
    None = all.
    """
    def __eq__(self, value: object, /) -> bool: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __new__(cls, /, name: str, record: SupportsIndex | SupportsGetItem[int, SupportsIndex], layers: SupportsGetItem[int, SupportsIndex], *, kind: str = "entries", window: SupportsIndex | None = None, ratio: SupportsIndex = 1, format: str = "opaque", page_entries: SupportsIndex = 0, align: SupportsIndex = 1, heads: SupportsIndex = 0, draft: bool = False, elements: SupportsIndex = 0, span: SupportsIndex | None = None, feeds_entries_only: bool = False, reads: SupportsGetItem[int, tuple[SupportsIndex, SupportsIndex | None]] = ...) -> Group: ...
    def __repr__(self, /) -> str: ...
    @property
    def align(self, /) -> int:
        """
        Engine pages are padded to a multiple of this many bytes.
        """
    @property
    def draft(self, /) -> bool:
        """
        Belongs to draft (MTP) layers.
        """
    @property
    def elements(self, /) -> int:
        """
        Numbers cached per entry and layer; 0 = not known.
        """
    @property
    def format(self, /) -> str:
        """
        Name of the record format, scale rule included.
        """
    @property
    def heads(self, /) -> int:
        """
        Key-value heads that split the group over ranks; 0 = the same on every rank.
        """
    @property
    def kind(self, /) -> str:
        """
        "entries", "window" or "state".
        """
    @property
    def layers(self, /) -> list[int]:
        """
        Owner layers, ascending.
        """
    @property
    def name(self, /) -> str:
        """
        Name, unique in its layout.
        """
    @property
    def page_entries(self, /) -> int:
        """
        Entries of one engine page; 0 = all of the block.
        """
    @property
    def planes(self, /) -> list[int]:
        """
        Bytes per entry of each plane of the page.
        """
    @property
    def ratio(self, /) -> int:
        """
        Tokens per entry.
        """
    @property
    def record_bytes(self, /) -> int:
        """
        Logical bytes of one entry and layer.
        """
    @property
    def window(self, /) -> int | None:
        """
        Window in tokens, or None.
        """

@final
class Keyed:
    """
    Look-ups, leases and puts under keys that a serving engine made (vLLM, SGLang, LMCache).

    keys are n keys of 16 to 32 bytes in one buffer: a uint8 array [n, width], a bytes object
    together with width, or a list of bytes objects of one length. They go through the keyed hash of
    the namespace and the tenant, so that equal keys of two models or tenants name different objects.
    group is the index of the KV cache group where an engine delivers groups one by one.
    """
    def __repr__(self, /) -> str: ...
    def block_keys(self, /, keys: Keys, *, width: SupportsIndex | None = None, group: SupportsIndex = 0) -> bytes:
        """
        The block keys that the store makes of these, 32 bytes each in one piece: what `store.mirror`
        knows blocks by.
        """
    def get_into(self, /, keys: Keys, out: Places, *, width: SupportsIndex | None = None, group: SupportsIndex = 0) -> int:
        """
        Copies the objects of keys into writable memory, each into its place, from the first to the
        last that can be given; the number of those. out is one uint8 array [n, bytes], or a list of
        writable buffers of the objects' lengths.
        """
    def get_into_async(self, /, keys: Keys, out: Places, *, width: SupportsIndex | None = None, group: SupportsIndex = 0) -> Coroutine[Any, Any, int]:
        """
        `get_into` in another thread.
        """
    def lease(self, /, keys: Keys, *, width: SupportsIndex | None = None, group: SupportsIndex = 0) -> KeyedLease:
        """
        Pins, reads and verifies the objects of keys, from the first to the last that can be given.
        """
    def lease_async(self, /, keys: Keys, *, width: SupportsIndex | None = None, group: SupportsIndex = 0) -> Coroutine[Any, Any, KeyedLease]:
        """
        `lease` in another thread.
        """
    def match(self, /, keys: Keys, *, width: SupportsIndex | None = None, group: SupportsIndex = 0, worker: Worker | None = None) -> KeyedMatch:
        """
        How many keys are stored from the first on, and where. worker is one of `store.mirror` that
        asks for itself: what it holds is present, stored or not.
        """
    def put(self, /, keys: Keys, bodies: Bodies, *, parents: Parents | None = None, lengths: Lengths | None = None, width: SupportsIndex | None = None, group: SupportsIndex = 0, ack: str | None = None, ttl: Seconds | None = None) -> Batch:
        """
        Stores the bodies of keys. The bytes are copied before this returns.

        bodies is a uint8 array [n, bytes], a list of bytes-like objects, or one buffer together with
        the length of each body. parents[i] says under what key i hangs, which is what eviction goes
        by: the index of an earlier key of this batch, -1 (the root), or a key of an earlier put, as
        bytes. Without parents the keys of group 0 hang under the root, and those of other groups
        under group 0's object of the same key; a parent given as a key is one of group 0. A key
        whose parent in this batch was not accepted gets its parent's status. ack and ttl are those
        of `Namespace.put`.
        """
    def put_async(self, /, keys: Keys, bodies: Bodies, *, parents: Parents | None = None, lengths: Lengths | None = None, width: SupportsIndex | None = None, group: SupportsIndex = 0, ack: str | None = None, ttl: Seconds | None = None) -> Coroutine[Any, Any, Batch]:
        """
        `put` in another thread. The objects must not change until it has returned.
        """
    def tiers(self, /, keys: Keys, *, width: SupportsIndex | None = None, group: SupportsIndex = 0) -> list[list[str]]:
        """
        Which tiers hold the object of each key at this moment, of "mirror" (some worker's HBM),
        "host" and "disk". No look-up: it counts nothing, and asks for each key by itself.
        """

@final
class KeyedLease:
    """
    Pinned objects of keys, from the first on; a context manager and a sequence like Lease.
    """
    def __enter__(self, /) -> KeyedLease: ...
    def __exit__(self, /, kind: Any | None = None, error: Any | None = None, traceback: Any | None = None) -> None: ...
    def __getitem__(self, index: SupportsIndex, /) -> View:
        """
        The object of key i.
        """
    def __iter__(self, /) -> Iterator[View]: ...
    def __len__(self, /) -> int:
        """
        Number of objects that were given.
        """
    def __repr__(self, /) -> str: ...
    def close(self, /) -> None:
        """
        Ends the lease: no new views. Views that were taken live on.
        """
    @property
    def missed(self, /) -> str | None:
        """
        Why the key after the last one could not be given; None when all were.
        """
    def parts(self, /, index: SupportsIndex) -> list[View]:
        """
        The pieces that the object of key i is stored in, in order: most have one.
        """

@final
class KeyedMatch:
    """
    How many keys are stored from the first on, and where.
    """
    def __repr__(self, /) -> str: ...
    @property
    def blocks(self, /) -> Answers:
        """
        One answer per key: "mirror" (the worker that asked holds it), "host", "disk", or the reason of
        a miss.
        """
    @property
    def disk_blocks(self, /) -> int:
        """
        Keys whose object is on disk only.
        """
    @property
    def host_blocks(self, /) -> int:
        """
        Keys whose object is in host memory.
        """
    @property
    def matched(self, /) -> int:
        """
        Keys that are stored, or held by the worker that asked, from the first on without a hole.
        """
    @property
    def mirror_blocks(self, /) -> int:
        """
        Keys whose object the worker that asked holds itself.
        """

@final
class Layout:
    """
    The groups of a model with record formats, ratios, owners, windows and shard axes: enough to
    account for each byte that its cache has, and to say where it lies.
    """
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self, /) -> int: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __repr__(self, /) -> str: ...
    @property
    def alignment(self, /) -> int:
        """
        Tokens to whose multiples a resume point is rounded down.
        """
    @property
    def block_tokens(self, /) -> int:
        """
        Tokens of one block.
        """
    @property
    def body_bytes(self, /) -> int:
        """
        Bytes of one block's body.
        """
    @property
    def bounded_replay_tokens(self, /) -> int | None:
        """
        Tokens of a bounded replay, or None where the model was not made for one.
        """
    @staticmethod
    def by_hand(name: str, block_tokens: SupportsIndex, groups: SupportsGetItem[int, Group], *, form: str = "by hand", model_layers: SupportsIndex = 0) -> Layout:
        """
        A layout from groups written out by hand. form names the engine and record formats,
        model_layers the layers of the model where some own no cache.
        """
    def bytes_per_token(self, /, *, padded: bool = False) -> Any:
        """
        Bytes per token of all entries groups, as an exact fraction.
        """
    def canonical(self, /) -> bytes:
        """
        The bytes that the layout id is a hash of.
        """
    @property
    def checkpoint_bytes(self, /) -> int:
        """
        Bytes of a checkpoint at a block end; 0 without state there.
        """
    def describe(self, /) -> str:
        """
        The layout as a small table for people.
        """
    def elements_per_token(self, /) -> Any:
        """
        Numbers cached per token over all layers, as an exact fraction.
        """
    def entries_per_token(self, /) -> Any:
        """
        Entries per token over all owner layers, as an exact fraction.
        """
    def entry_bytes(self, /, n: SupportsIndex, *, padded: bool = False) -> int:
        """
        Bytes of all entries groups at n tokens.
        """
    def exact_replay_tokens(self, /, *, below: SupportsIndex | None = None) -> int | None:
        """
        Tokens to recompute over stored entries to rebuild windows and states exactly, or None where
        a state is recurrent. below counts the layers below one layer only.
        """
    @property
    def form(self, /) -> str:
        """
        The engine and record formats whose bytes these are.
        """
    @staticmethod
    def from_hf_config(config: Any, *, form: str = "transformers", dtype: str | None = None, draft: bool = False, block_tokens: SupportsIndex | None = None) -> Layout:
        """
        The layout of a transformers configuration: an object, a dict, a config.json or a folder
        that holds one. block_tokens is the length of a block, a multiple of the alignment; the
        form's own when None. Raises kvstore.layouts.CannotPlace with the field that has no place.
        """
    def group_bytes(self, /, n: SupportsIndex, *, padded: bool = False, held: bool = False) -> list[int]:
        """
        Bytes of each group at n tokens, as a list in group order.
        """
    def group_read_bytes(self, /, n: SupportsIndex) -> list[int]:
        """
        The same by group, in group order.
        """
    @property
    def groups(self, /) -> list[Group]:
        """
        The groups, in their order in the objects.
        """
    def layer_bytes(self, /, layer: SupportsIndex, n: SupportsIndex, *, padded: bool = False) -> int:
        """
        Bytes of one layer over all groups at n tokens.
        """
    @property
    def max_window(self, /) -> int:
        """
        The largest window in tokens; 0 without window groups.
        """
    @property
    def model_layers(self, /) -> int:
        """
        Layers of the model.
        """
    @property
    def name(self, /) -> str:
        """
        Name of the architecture.
        """
    @staticmethod
    def named(name: str, form: str | None = None, *, draft: bool = False, toml: str | None = None, origin: str = "toml") -> Layout:
        """
        The layout of an architecture of the registry, in its default form or the one named. With
        draft=True the groups of draft (MTP) layers are included. toml is the text of a user's file
        whose entries are added, origin its name in errors.
        """
    @staticmethod
    def opaque(name: str, block_tokens: SupportsIndex, groups: SupportsGetItem[int, Group], *, form: str = "opaque", split_by_group: bool = False) -> Layout:
        """
        A layout whose sizes, kinds and windows a serving engine tells. With split_by_group each
        group is an object of its own.
        """
    @property
    def owner_layers(self, /) -> int:
        """
        Layers that own entries.
        """
    def page(self, /, group: SupportsIndex | str, layer: SupportsIndex) -> tuple[str, int, int] | None:
        """
        (area, offset, length) in bytes of one group's page of one owner layer; area is "body",
        "window" or "checkpoint". group is a name or an index. None when the layer owns no page.
        """
    def persistent_per_token(self, /, interval: SupportsIndex | None, *, windows: bool = True, tails: str = "exact", padded: bool = False) -> Any:
        """
        Bytes stored per token with a resume point every `interval` tokens, as an exact fraction;
        None = entries only.
        """
    def rank_bytes(self, /, n: SupportsIndex, sizes: tuple[SupportsIndex, SupportsIndex, SupportsIndex], rank: tuple[SupportsIndex, SupportsIndex, SupportsIndex] = ..., *, padded: bool = False) -> list[int]:
        """
        Bytes of each group that rank (tp, pp, cp) of a deployment of sizes (tp, pp, cp) holds.
        """
    def read_bytes(self, /, n: SupportsIndex) -> int:
        """
        Cache bytes that one decode step at n tokens reads.
        """
    def request_bytes(self, /, n: SupportsIndex, *, padded: bool = False) -> int:
        """
        Bytes that one request of n tokens occupies: entries, held windows and rings.
        """
    def resume_point_bytes(self, /, *, windows: bool = True, tails: str = "exact", padded: bool = False) -> int:
        """
        Bytes of one resume point besides the entries. tails is "none", "exact" or "engine".
        """
    def ring_bytes(self, /) -> int:
        """
        Bytes of all state groups as engines hold them for a running request.
        """
    @property
    def split_by_group(self, /) -> bool:
        """
        Whether each group is an object of its own.
        """
    def state_bytes(self, /, n: SupportsIndex, *, padded: bool = False) -> int:
        """
        Bytes of all state groups at n tokens, open pooling groups included.
        """
    def tp_copies(self, /, tp: SupportsIndex) -> list[int]:
        """
        Copies of each group's bytes that tp tensor ranks hold.
        """
    @property
    def window_bytes(self, /) -> int:
        """
        Bytes of one block's window object; 0 without window groups.
        """
    def window_bytes_at(self, /, n: SupportsIndex, *, padded: bool = False, held: bool = False) -> int:
        """
        Bytes of all window groups at n tokens: min(n, w - 1) rows, or min(n, w) with held=True.
        """
    def with_block_tokens(self, /, block_tokens: SupportsIndex) -> Layout:
        """
        The same layout with blocks of another length: a positive multiple of the alignment.
        """

@final
class Lease:
    """
    Pinned objects of one plan, read and verified; a context manager, and the sequence of its
    bodies.

    `lease[i]` is the body of block i. Views that were taken keep their memory after the block (see
    View); the lease itself gives no new ones then, nor after its deadline.
    """
    def __enter__(self, /) -> Lease: ...
    def __exit__(self, /, kind: Any | None = None, error: Any | None = None, traceback: Any | None = None) -> None: ...
    def __getitem__(self, block: SupportsIndex, /) -> View:
        """
        The body of one block; negative numbers count from the last. A block that the worker that
        matched holds itself ("mirror" in plan.blocks) was not read.
        """
    def __iter__(self, /) -> Iterator[View]: ...
    def __len__(self, /) -> int: ...
    def __repr__(self, /) -> str: ...
    @property
    def checkpoint(self, /) -> View | None:
        """
        The plan's checkpoint, or None.
        """
    def close(self, /) -> None:
        """
        Ends the lease: no new views. Views that were taken live on.
        """
    def page(self, /, block: SupportsIndex, group: SupportsIndex | str, layer: SupportsIndex) -> View:
        """
        The page of one group and owner layer in one block: zero-copy, unless it crosses a cut
        between parts. group is a name or an index. State groups are at the plan's checkpoint only,
        whatever the block.
        """
    def parts(self, /, block: SupportsIndex, area: str = "body") -> list[View]:
        """
        The pieces that an object is stored in, in order: most have one. area is "body", "window" or
        "checkpoint" (of which a plan has one, whatever the block).
        """
    @property
    def plan(self, /) -> Plan:
        """
        What was really got: a plan like that of `match`, shorter where an object failed.
        """
    def window(self, /, block: SupportsIndex) -> View:
        """
        The window object of one block of `plan.windows`.
        """

@final
class Mirror:
    """
    What the workers of a serving engine hold in HBM: bookkeeping only, no bytes pass here. It is
    `store.mirror`.

    A worker joins with a number of slots and marks which block is in which. `ns.match(tokens,
    worker=worker)` counts its blocks as present, stored or not; eviction of host memory prefers
    blocks that have another copy. keys are block keys of the store, 32 bytes each, in one buffer or
    a list: `plan.keys`, or `ns.keyed.block_keys(hashes)`.
    """
    def __repr__(self, /) -> str: ...
    def contains(self, /, keys: Keys, worker: Worker | None = None) -> list[bool]:
        """
        Whether a worker holds each block; without one, whether any does.
        """
    def drop_worker(self, /, worker: Worker | SupportsIndex) -> None:
        """
        A worker is lost, and all of its marks with it. Given by its id, whoever has that id; given
        as a Worker, nothing happens if it has been replaced.
        """
    def insert(self, /, keys: Keys, slots: SupportsGetItem[int, SupportsIndex], worker: Worker) -> int:
        """
        Marks blocks as held by a worker, keys[i] in slots[i]; the number of marks, which is 0 when
        the worker's epoch is over. A slot that held another block holds this one now, and a block
        that was in another slot of the worker has moved.
        """
    def join(self, /, worker: SupportsIndex, slots: SupportsIndex) -> Worker:
        """
        A worker with `slots` slots joins under an epoch of its own. One of this id that is there is
        taken for lost: its marks are dropped, and under its old epoch it marks nothing any more.

        Ids are 0 to 254. Raises LimitError when the slots of all workers would be more than the
        store's mirror_slots.
        """
    def remove(self, /, keys: Keys, worker: Worker) -> int:
        """
        A worker no longer holds these blocks; the number of marks that went.
        """

@final
class Namespace:
    """
    One model side and one tenant of a store. Made by `store.namespace`.
    """
    def __repr__(self, /) -> str: ...
    @property
    def block_tokens(self, /) -> int:
        """
        Tokens of a block.
        """
    def clear(self, /, erase: bool = False) -> int:
        """
        Makes everything stored in this namespace unreachable, by any tenant; the number of objects.
        erase=True also overwrites them.
        """
    @property
    def digest(self, /) -> bytes:
        """
        Digest of its description, 32 bytes.
        """
    def explain(self, /, token_ids: TokenIds, extra_keys: ExtraKeys | None = None) -> Explanation:
        """
        Why a prompt hits no more: the block, the reason, and the fields of the namespace that
        differ from the nearest one that has objects. Counts no look-up.
        """
    def get_into(self, /, plan: Plan, out: Writable) -> Plan:
        """
        Copies what a plan names into writable memory: the bodies in order, then the windows, then
        the checkpoint, without gaps (plan.read_bytes in all). Copy and check are one pass. The
        answer is the plan that was really got; bytes behind its objects are undefined.
        """
    def get_into_async(self, /, plan: Plan, out: Writable) -> Coroutine[Any, Any, Plan]:
        """
        `get_into` in another thread.
        """
    @property
    def keyed(self, /) -> Keyed:
        """
        The same namespace under a serving engine's own block keys.
        """
    def keys(self, /, token_ids: TokenIds, extra_keys: ExtraKeys | None = None) -> bytes:
        """
        The keys of all whole blocks of a prompt, 32 bytes each, in one bytes object.
        """
    @property
    def layout(self, /) -> Layout:
        """
        The layout of its objects.
        """
    def lease(self, /, plan: Plan) -> Lease:
        """
        Pins, reads and verifies what a plan names. Where an object cannot be given the plan is made
        again on what is left: `lease.plan` is the answer.
        """
    def lease_async(self, /, plan: Plan) -> Coroutine[Any, Any, Lease]:
        """
        `lease` in another thread.
        """
    def match(self, /, token_ids: TokenIds, extra_keys: ExtraKeys | None = None, allow_approximate: bool = False, costs: Costs | None = None, worker: Worker | None = None) -> Plan:
        """
        Looks a prompt up: what is stored, and from where it goes on. Pins nothing: a hint until a
        lease has verified it.

        extra_keys says what besides the tokens decides the bytes of a block (media, embeddings):
        {block: bytes or list of bytes}, each of at least 16 bytes. allow_approximate admits chains
        that were stored after a bounded replay, and plans that make one. costs is a pair: what
        recomputing a token and reading a byte cost; without it the plan with the fewest tokens to
        compute wins. worker is one of `store.mirror` that asks for itself: the blocks that it holds
        are present, stored or not, and neither a lease nor get_into reads them.
        """
    def prefetch(self, /, plan: Plan, deadline: Seconds | None = None) -> Batch:
        """
        Starts to bring what a plan names from disk to host memory, and returns at once; deadline is
        in seconds (the store's read_deadline). One status per object: "stored" is in host memory
        now.
        """
    def put(self, /, token_ids: TokenIds, bodies: Bodies | None, first_block: SupportsIndex = 0, windows: Blocks | None = None, checkpoints: Blocks | None = None, extra_keys: ExtraKeys | None = None, replayed_from: SupportsIndex | None = None, hint: Any | None = None, ack: str | None = None, ttl: Seconds | None = None) -> Batch:
        """
        Stores blocks of a prompt. The bytes are copied before this returns.

        token_ids begins at token 0; bodies[j] is block first_block + j: one C-contiguous uint8
        array [blocks, body_bytes], or a sequence of bytes-like objects of exactly that length, or
        None. windows is {block: bytes-like}, checkpoints {tokens: bytes-like}. extra_keys as in
        `match`. replayed_from is the first block that was stored after a bounded replay (as
        plan.replayed_from of a chain that goes on).

        ack is "host" (the default: in host memory, write-behind starts at once), "ssd" (survives a
        kill) or "ssd+flush" (survives a power cut). ttl is the life in seconds, by default the
        namespace's.

        The batch has one status per item: by block, the body, its window, its checkpoint. A block
        whose parent was not accepted gets its parent's status, and so do windows and checkpoints of
        a block that was not accepted.
        """
    def put_async(self, /, token_ids: TokenIds, bodies: Bodies | None, first_block: SupportsIndex = 0, windows: Blocks | None = None, checkpoints: Blocks | None = None, extra_keys: ExtraKeys | None = None, replayed_from: SupportsIndex | None = None, hint: Any | None = None, ack: str | None = None, ttl: Seconds | None = None) -> Coroutine[Any, Any, Batch]:
        """
        `put` in another thread. The objects must not change until it has returned.
        """
    def usage(self, /, token_ids: TokenIds, unit: SupportsIndex = 64, extra_keys: ExtraKeys | None = None) -> Usage:
        """
        Prompt, hit and miss tokens of a prompt in whole units, as an API bills them. Counts no
        look-up; `plan.usage()` does the same for a plan.
        """

@final
class Plan:
    """
    From where a prompt goes on: a hint when it comes from `match`, the answer as `lease.plan`.

    Lengths are in tokens, ranges in blocks. matched, usable and replay_start stay apart: what is
    stored, what can be used (a resume point, at most tokens - 1), and where computing starts
    (earlier than usable in the replay modes).
    """
    def __repr__(self, /) -> str: ...
    @property
    def blocks(self, /) -> Answers:
        """
        One answer per whole block of the prompt: "mirror" (the worker that asked holds it), "host",
        "disk", or the reason of a miss.
        """
    @property
    def bodies(self, /) -> tuple[int, int]:
        """
        Blocks whose bodies are read, as (first, end); end is excluded.
        """
    @property
    def checkpoint(self, /) -> int | None:
        """
        The checkpoint that is read, as its number of tokens; None without one.
        """
    @property
    def cost(self, /) -> float | None:
        """
        Its cost in the unit of the costs that were given, or None.
        """
    @property
    def disk_blocks(self, /) -> int:
        """
        Usable blocks that are on disk only.
        """
    @property
    def disk_bytes(self, /) -> int:
        """
        Bytes of their bodies.
        """
    @property
    def extra_ids(self, /) -> int:
        """
        Token ids that are needed before replay_start.
        """
    @property
    def host_blocks(self, /) -> int:
        """
        Usable blocks that are in host memory.
        """
    @property
    def host_bytes(self, /) -> int:
        """
        Bytes of their bodies.
        """
    @property
    def keys(self, /) -> bytes:
        """
        Block keys of the prompt's whole blocks, 32 bytes each, for `store.mirror`.
        """
    @property
    def matched(self, /) -> int:
        """
        Tokens whose entries are stored without a hole.
        """
    @property
    def mirror_blocks(self, /) -> int:
        """
        Usable blocks that the worker that asked holds itself: they are not read.
        """
    @property
    def mode(self, /) -> str:
        """
        "plain", "checkpoint", "exact_replay", "bounded_replay" or "nothing".
        """
    @property
    def read_bytes(self, /) -> int:
        """
        Bytes of all objects to read: the size of `get_into`'s buffer.
        """
    @property
    def recompute_layer_tokens(self, /) -> int:
        """
        Layers times tokens to compute.
        """
    @property
    def recompute_tokens(self, /) -> int:
        """
        Tokens to compute: tokens - replay_start.
        """
    @property
    def replay_start(self, /) -> int:
        """
        First token to compute.
        """
    @property
    def replayed_from(self, /) -> int | None:
        """
        The block from which on the chain is a replayed one; None for an exact chain. Give it to
        `put` when the chain goes on.
        """
    def tiers(self, /) -> list[list[str]]:
        """
        Which tiers hold each block at this moment, of "mirror" (some worker's HBM), "host" and
        "disk". No look-up: it counts nothing, and asks for each block by itself.
        """
    @property
    def tokens(self, /) -> int:
        """
        Tokens of the prompt.
        """
    @property
    def usable(self, /) -> int:
        """
        The resume point: tokens whose stored entries are used.
        """
    def usage(self, /, unit: SupportsIndex = 64) -> Usage:
        """
        Prompt, hit and miss tokens in whole units, as an API bills them.
        """
    @property
    def windows(self, /) -> tuple[int, int]:
        """
        Blocks whose window objects are read, as (first, end); end is excluded.
        """

@final
class ResumePlan:
    """
    From where a prompt can go on, what to read for that and what to compute. Lengths in tokens,
    ranges in blocks as (first, one past the last).
    """
    def __eq__(self, value: object, /) -> bool: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __repr__(self, /) -> str: ...
    @property
    def bodies(self, /) -> tuple[int, int]:
        """
        Bodies to read.
        """
    @property
    def checkpoint(self, /) -> int | None:
        """
        The checkpoint to read, in tokens, or None.
        """
    @property
    def cost(self, /) -> float | None:
        """
        Its cost, when costs were given.
        """
    @property
    def extra_ids(self, /) -> int:
        """
        Token ids needed before replay_start.
        """
    @property
    def matched(self, /) -> int:
        """
        Tokens whose entries are stored without a hole.
        """
    @property
    def mode(self, /) -> str:
        """
        "plain", "checkpoint", "exact_replay", "bounded_replay" or "nothing".
        """
    @property
    def read_bytes(self, /) -> int:
        """
        Bytes to read.
        """
    @property
    def recompute_layer_tokens(self, /) -> int:
        """
        Layers times tokens to compute.
        """
    @property
    def recompute_tokens(self, /) -> int:
        """
        Tokens to compute.
        """
    @property
    def replay_start(self, /) -> int:
        """
        First token to compute.
        """
    @property
    def usable(self, /) -> int:
        """
        The resume point: tokens whose stored entries are used.
        """
    @property
    def windows(self, /) -> tuple[int, int]:
        """
        Window objects to read.
        """

@final
class Status:
    """
    Answer for one item of a put or prefetch.

    name is "stored", "exists" (was there before; the first writer's bytes stay), "rejected" (see
    reason), "busy" (a queue is full: try again later), "cancelled" or "pending".
    """
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self, /) -> int: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __repr__(self, /) -> str: ...
    @property
    def accepted(self, /) -> bool:
        """
        Whether the bytes are in the store at the asked level: stored or exists.
        """
    @property
    def name(self, /) -> str:
        """
        The answer in one word.
        """
    @property
    def reason(self, /) -> str | None:
        """
        Why it was rejected; None for other answers.
        """

@final
class Statuses:
    """
    Statuses in the order of the items.
    """
    def __getitem__(self, index: SupportsIndex, /) -> Status: ...
    def __iter__(self, /) -> Iterator[Status]: ...
    def __len__(self, /) -> int: ...
    def __repr__(self, /) -> str: ...
    @property
    def accepted(self, /) -> bool:
        """
        Whether every item is stored or exists.
        """
    def count(self, /, name: str) -> int:
        """
        How many items have this status: count("stored").
        """

@final
class Store:
    """
    A store: what was computed once, in host memory and on disk. Made by `kvstore.open`.

    A context manager: leaving the block closes it. Handles of one directory in one process share
    one engine, which closes with the last of them.
    """
    def __enter__(self, /) -> Store: ...
    def __exit__(self, /, kind: Any | None = None, error: Any | None = None, traceback: Any | None = None) -> None: ...
    def __repr__(self, /) -> str: ...
    def arena_range(self, /) -> ArenaRange:
        """
        Where the host tier's memory is, for cudaHostRegister only (see kvstore.torch.pinned).
        """
    def clear(self, /, *, cache_salt: bytes | bytearray | str, erase: bool = False) -> int:
        """
        Makes everything stored under this salt unreachable, in all namespaces; the number of
        objects. erase=True also overwrites them.
        """
    def close(self, /) -> bool:
        """
        Closes this handle; the last one of a directory writes what is pending, within the store's
        close_deadline. True if everything was written. A second call does nothing.
        """
    @property
    def closed(self, /) -> bool:
        """
        Whether this handle was closed.
        """
    def flush(self, /, timeout: Seconds | None = None) -> bool:
        """
        Writes what is pending and flushes the device, for up to timeout seconds (60 when None).
        True if all of it survives a power cut now.
        """
    @property
    def mirror(self, /) -> Mirror:
        """
        What the workers of a serving engine hold in HBM.
        """
    def namespace(self, /, layout: Layout, *, model: str, weights: Weights, cache_salt: bytes | bytearray | str | None = None, revision: str = "", adapter: bytes | bytearray | None = None, dtype: str | None = None, scale_rule: str | None = None, axes: dict[str, tuple[SupportsIndex, SupportsIndex]] | None = None, extra: dict[str, str] | None = None, hash_rule: str | None = None, ttl: Seconds | None = None, deterministic: bool = False, allow_weights_by_name: bool = False) -> Namespace:
        """
        A namespace: all of the model side that changes cache bytes, and a tenant.

        weights is a fingerprint of the weights: 32 bytes (BLAKE3 of all tensor bytes), or a pair of
        kind and digest, kvstore.Weights("hub", digest); a kind is "full", "hub", "cached", "sampled"
        or "name". A name is refused unless allow_weights_by_name says that other weights under it
        would be fine. cache_salt is the tenant's secret: it is neither stored nor shown. adapter is
        a digest of the adapter's content (16 to 64 bytes). dtype and scale_rule name the number
        format (by default the layout's own record formats), axes the shards: {"tp": (rank, size)}.
        extra takes whatever else changes bytes, as strings. ttl is the life of its objects, in
        seconds. With deterministic=True a second put with other bytes raises DivergenceError.

        Two processes share cache exactly when all of this is equal.
        """
    @property
    def path(self, /) -> Path:
        """
        Directory of the store.
        """
    def stats(self, /) -> dict[str, Any]:
        """
        What the store holds and what it has counted: numbers and strings in nested dicts. Sizes are
        in bytes.
        """

@final
class Trace:
    """
    The requests of a trace file: an iterator of `(timestamp_ms, input_length, output_length,
    block_ids)`. Lengths are in tokens; `block_ids` is a bytes object of little-endian unsigned
    64-bit numbers, in prompt order.

    Raises ValueError for a line that is no request and OSError for a file that cannot be read,
    each with path and line.
    """
    def __iter__(self, /) -> Trace: ...
    def __next__(self, /) -> tuple[float, int, int, bytes]: ...

@final
class Usage:
    """
    Prompt, hit and miss tokens, in whole units.
    """
    def __eq__(self, value: object, /) -> bool: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __repr__(self, /) -> str: ...
    @property
    def first_difference(self, /) -> int | None:
        """
        The first unit that differs from what is stored; None when all of it is stored.
        """
    @property
    def hit_tokens(self, /) -> int:
        """
        Tokens that come from the store: a multiple of the unit, at most prompt_tokens - 1.
        """
    @property
    def miss_tokens(self, /) -> int:
        """
        The rest.
        """
    @property
    def prompt_tokens(self, /) -> int:
        """
        Tokens of the prompt.
        """

@final
class View:
    """
    Read-only bytes of one stored object, or of a page of it.

    It has the buffer protocol (`memoryview(view)`, `numpy.frombuffer(view, dtype)`) and DLPack.
    Both are zero-copy and keep the memory in its place: also after the lease's `with` block, after
    `close()`, and as long as an array made from it lives. Memory under a live view is not reused
    and counts against the store's limit of pinned bytes, so copy what you keep for long.

    torch has no read-only tensors and writes through them. So `torch.from_dlpack(view)` is a copy;
    `torch.from_dlpack(view, copy=False)` and `torch.frombuffer(view, ...)` are views, to be read
    only. What is written through one never reaches another reader: while this object or an array
    made from it lives, others read from disk, and the memory is verified before it is trusted
    again. In a store with
    `arena="shared"` such a write is a segmentation fault.

    After a fork, views must not be touched in the child: the memory is not mapped there.
    """
    def __buffer__(self, flags: SupportsIndex, /) -> memoryview:
        """
        A memoryview of the bytes: what makes this a `collections.abc.Buffer`.
        """
    def __bytes__(self, /) -> bytes: ...
    def __dlpack__(self, /, *, stream: Any | None = None, max_version: tuple[SupportsIndex, SupportsIndex] | None = None, dl_device: tuple[SupportsIndex, SupportsIndex] | None = None, copy: bool | None = None) -> CapsuleType:
        """
        The DLPack capsule of the bytes, one-dimensional uint8. A copy, unless copy=False asks for
        the store's own memory, marked read-only.
        """
    def __dlpack_device__(self, /) -> tuple[int, int]:
        """
        (1, 0): the CPU.
        """
    def __len__(self, /) -> int: ...
    def __repr__(self, /) -> str: ...
    def copy(self, /) -> bytearray:
        """
        A writable copy of the bytes.
        """
    @property
    def nbytes(self, /) -> int:
        """
        Number of bytes.
        """

@final
class Worker:
    """
    A worker of a serving engine under one epoch. Made by `store.mirror.join`.
    """
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self, /) -> int: ...
    def __ne__(self, value: object, /) -> bool: ...
    def __repr__(self, /) -> str: ...
    @property
    def epoch(self, /) -> int:
        """
        The number of its join; each join of a store has its own.
        """
    @property
    def id(self, /) -> int:
        """
        The id that it joined with.
        """

def architectures(toml: str | None = None, *, origin: str = "toml") -> list[Architecture]:
    """
    All architectures of the registry, in its order. toml is the text of a user's file whose entries
    are added, origin its name in errors.
    """

def capacity_blocks(capacity: str, unique_blocks: SupportsIndex) -> int:
    """
    The blocks that a capacity stands for in a trace of so many unique blocks: "1827", or "1%".
    """

def check(store: Store, *, repair: bool = False, progress: Any | None = None) -> dict[str, Any]:
    """
    Reads every object on disk and compares it with its checksum; with repair those that fail are
    removed. progress is called now and then with objects done and in all.

    Gives `objects` and `bytes` read, `removed`, and `damaged`: a dict per object that failed, of
    `kind`, `namespace`, `segment`, `slot`, `bytes`, `key` (32 hex digits) and `why`.
    """

def clear_namespaces(store: Store, digest: str, *, erase: bool = False) -> int:
    """
    Makes everything in the namespaces whose digest begins with these hex digits unreachable; the
    number of objects. All namespaces begin with "". erase=True also overwrites them.
    """

def close_all() -> None:
    """
    Closes every store of this process, within a few seconds; the package calls it at exit.
    """

def existing_limits(path: str | PathLike[str]) -> dict[str, Any]:
    """
    Limits with which the store in a directory can be opened without changing it: a dict of
    `disk_bytes` and `objects`. Nothing is opened, and nothing is made where no store is.
    """

def inspect(store: Store) -> dict[str, Any]:
    """
    What a store is made of: identity, limits, classes, segments and namespaces, in dicts.
    """

def keep(layout: Layout, start: SupportsIndex, end: SupportsIndex, prompt_tokens: SupportsIndex, *, every: SupportsIndex | None = None, prompt_end: bool = True, output_end: bool = True, windows: str = "trailing") -> tuple[list[int], list[int], list[int]]:
    """
    What a policy keeps of the computed tokens start..end: (resume points, checkpoints, blocks whose
    windows are kept). every is the interval of periodic points, windows is "all", "trailing" or
    "none".
    """

def open(path: Paths, *, host_bytes: Size | None = None, disk_bytes: Size | None = None, max_disk_bytes: Size | None = None, objects: SupportsIndex | None = None, disk_objects: SupportsIndex | None = None, mirror_slots: SupportsIndex | None = None, arena: str = "private", verify: str = "crossings", read_only: bool = False, write_budget_per_day: Size | None = None, leaf_first: bool = True, io_threads: SupportsIndex | None = None, lock_wait: Seconds | None = None, room_wait: Seconds | None = None, read_deadline: Seconds | None = None, close_deadline: Seconds | None = None, lease_deadline: Seconds | None = None) -> Store:
    """
    Opens the store in a directory, which is made if it is not there; a second open in one process
    joins the first.

    Sizes are bytes or strings like "8 GiB", times are seconds.

    - host_bytes (1 GiB), disk_bytes (16 GiB): limits of all that a tier holds, index and tables
      included. host_bytes=0 keeps nothing in host memory.
    - max_disk_bytes (4 x disk_bytes): the largest disk_bytes of a later open; read at creation.
    - objects: entries of the index (one per 32 KiB); disk_objects: most objects on disk (no limit).
    - mirror_slots (65,536): slots that the workers of `store.mirror` have together, 28 bytes of
      host_bytes each.
    - arena ("private"): "shared" is memory that other processes can map, with views that cannot be
      written through.
    - verify ("crossings"): bytes are checked when they come from disk and where a view of them could
      have been written; "always": at each lease.
    - read_only: writes nothing; puts are rejected.
    - write_budget_per_day: bytes that may be written to disk per day (no limit).
    - leaf_first (True): evict leaves of the prefix tree only; False leaves holes, for comparison.
    - io_threads (8); lock_wait (5): how long to wait for another owner; room_wait (30): how long a
      put with ack "ssd" waits for room; read_deadline (30), close_deadline (30), lease_deadline (600).

    Write-behind starts at once, but only what `ack="ssd"` or `flush` answered for is on disk for
    sure: an end of the process without `close`, by signal or exit, may lose what was put last, and
    nothing else. At a normal exit every store is closed.

    Raises LockedError when another process owns it, IncompatibleError for another format,
    InvalidArgument for limits that cannot be kept and StoreIOError where the file system refuses.
    """

def parse_size(size: Size) -> int:
    """
    Bytes of a size: an integer, or a string of a number and a unit: B, KB, MB, GB, TB (powers of
    1000) or KiB, MiB, GiB, TiB (powers of 1024). "1.5 GiB" is 1610612736.
    """

def read_trace(path: str | PathLike[str], head: SupportsIndex | None = None) -> Trace:
    """
    Opens a trace: JSON Lines, plain or compressed with gzip or zstd. At most `head` requests are
    read.
    """

def records() -> list[tuple[str, list[int], str]]:
    """
    All named record formats as (name, bytes per entry of each plane, source).
    """

def resume_plan(layout: Layout, n_tokens: SupportsIndex, bodies: SupportsIndex, *, windows: set[SupportsIndex] = ..., checkpoints: set[SupportsIndex] = ..., costs: tuple[SupportsFloat | SupportsIndex, SupportsFloat | SupportsIndex] | None = None, allow_approximate: bool = False) -> ResumePlan:
    """
    Plans the resume of a prompt of n_tokens, of which the first `bodies` blocks have stored bodies,
    the blocks in `windows` window objects, and the token counts in `checkpoints` checkpoints. costs
    is (cost of a token, cost of a byte).
    """

def simulate(path: str | PathLike[str], policy: str, capacities: SupportsGetItem[int, str], head: SupportsIndex | None = None, *, per_request: bool = False) -> list[dict[str, Any]]:
    """
    Replays a trace from an empty store at each capacity: blocks ("1827") or a share of the
    trace's unique blocks ("1%"). The policy is "leaf-lru", "lru" or "optimum".

    Gives a dict per capacity: `trace`, `policy`, `capacity`, `capacity_blocks`, `requests`,
    `blocks_requested`, `blocks_hit`, `hit_ratio`, `blocks_written`, `bytes_written_per_byte_hit`
    (None without a hit); with per_request also `hits`, the blocks that each request hit.
    """

def trace_info(path: str | PathLike[str], head: SupportsIndex | None = None) -> dict[str, Any]:
    """
    Counts of a trace: a dict of `requests`, `blocks_requested` and `unique_blocks`.

    Raises ValueError where an id stands for more than one block and its whole prefix.
    """

def usage_tokens(prompt_tokens: SupportsIndex, matched: SupportsIndex, usable: SupportsIndex, *, unit: SupportsIndex = 64) -> tuple[int, int, int, int | None]:
    """
    Disk context caching's arithmetic: (prompt, hit and miss tokens, first unit that differs or
    None) of a prompt of which the first `matched` tokens are stored and the first `usable` can be
    used.
    """
