// Package cache reads immutable objects of a bucket in aligned chunks and keeps them in memory. It knows no formats.
//
// An object is cut into chunks of ChunkBytes (the last one is shorter). A chunk is fetched by one GET, however many readers
// want it, into a slab: anonymous memory outside the Go heap. Readers get slices of the slab and share it; it goes back to
// the pool when the last of them has released it and the cache has dropped the chunk.
//
//	            Read / Prefetch                     done: pinned by its readers
//	(nothing) -------------------> queued -> fetching ------------------------> resident
//	    ^                                       | failed                          | dropped by the policy, or for room
//	    +---------------------------------------+---------------------------------+   freed when unpinned
//
// Invariants:
//
//  1. One budget (Options.Bytes) covers every slab: resident, being fetched, handed out, and pooled. Only a Read that is larger
//     than the whole budget passes it; it waits until no other chunk is pinned, and runs alone.
//  2. A chunk is in the index at most once, so there is one GET in flight for it. A failed one is forgotten: errors are not cached.
//  3. A slab is reused only when its chunk has no pins and is out of the index. Pins, index and lists change under one lock, held
//     for no I/O; bytes are read and written outside of it, by those who hold a pin.
//  4. A Read gets memory for all its missing chunks at once or none of it. Whoever waits for memory holds none, so there is no
//     deadlock: those who hold some are waiting for a GET, which has a deadline, or for their caller to release. Waiters are served in
//     order; reads that need no memory pass them.
//  5. What a reader has noted about bytes (Slices.SetVerified) holds for the chunks in which it saw them, and for no later ones of the
//     same object. Nobody writes to a slab between the end of its GET and its reuse, so what was true of it stays true.
//  6. A GET goes on when its reader has given up, so that the reader's retry finds the chunk.
//
// What stays is ristretto's decision: it gets every chunk with its cost, and every hit. Its answers are advice. Chunks that it
// rejects, evicts or loses become the first to go when room is needed, and stay until then: a reader takes a chunk in several
// reads, and must not fetch it for each. Among them, those go first that a sequential reader has left behind, then the longest
// unused; what was read ahead, and the chunks of a sequential reader's last read, go last of all, but not for ever: when the reader has not
// come after twice the cache's size of other chunks, they are given up. A chunk is left behind when its reader asks for what comes
// after it, not when it was read: whoever gave up on an answer asks for the same bytes again. What only one sequential reader has come
// through is not kept, even if the policy would: many small reads of one reader look to it like many readers. Nothing leaks when
// ristretto drops a set, and no budget depends on its cost.
//
// Sequential readers are noticed for each object, and chunks ahead of them are fetched, twice as many after each chunk up to
// MaxReadAhead. Prefetch does the same on demand, for the next object of a partition. Read-ahead takes at most a quarter of the
// budget, never waits, and is dropped when readers wait for memory.
//
// Goroutines: Workers of the cache's own, and ristretto's; Close ends them, and tells what was not released.
package cache
