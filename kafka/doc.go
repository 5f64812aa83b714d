// Package kafka is the TCP front door: it turns connections into ordered requests for a
// Handler and writes the Handler's responses. It knows the framing of the Kafka protocol, and
// the bodies of Produce and Fetch, whose codecs here move no record bytes; all other APIs are
// the handler's business. It imports nothing of ours.
//
// # Frames
//
// All integers are big-endian.
//
//	request   size int32 (of what follows) | header | body
//	header    api_key int16 | api_version int16 | correlation_id int32
//	          | client_id nullable string (int16 length)         version 1 and 2
//	          | tagged fields (uvarint count, then tag, size, bytes)   version 2
//	response  size int32 | correlation_id int32 | tagged fields (one zero byte; version 1) | body
//
// The request header has version 2, and the response header version 1, where the API's version
// is flexible (Flexible; from kmsg). Exceptions: ApiVersions is always answered with response
// header version 0; ControlledShutdown version 0 has request header version 0.
//
// # Goroutines
//
// Each listener has an accept goroutine. Each connection has a read goroutine (Conn.run),
// which owns it, and from its first request on a write goroutine (Conn.writeLoop), which the
// read goroutine starts and waits for:
//
//	read goroutine                        write goroutine
//	  take a slot (MaxInflightPerConn)      for each entry in order:
//	  read a frame (budget, caps)             Pending.Wait
//	  parse the header                        write size, header, Bufs by writev
//	  Handler.Handle                          Response.Release
//	  queue the Pending             ---->     give the slot back
//
// So requests of one connection are handled in order and answered in order, while up to
// MaxInflightPerConn of them overlap.
//
// # Invariants
//
//  1. Handle is called in request order and never concurrently for one connection; Wait is
//     called exactly once for each Pending, in the same order, also after the client has gone.
//  2. Release of each Response is called exactly once, after its bytes were written or given up.
//  3. No memory is allocated for what a size or count merely announces: a frame's buffer starts
//     with at most 64 KiB (at most 32 MiB, if the connection has sent as much in one frame before)
//     and grows to four times what has arrived; counts are capped by the bytes left and by a
//     number of elements.
//  4. Request buffers in use never exceed MaxInflightBytes by more than one request, and by what
//     buffers that were kept (64 MiB at most) are larger than the requests they serve. Readers
//     wait for the budget; one at a time may pass it, so one connection always goes on. Frames of
//     up to 16 KiB don't ask: there is one at most for each connection.
//  5. Every read of a begun frame and every write has a deadline.
//  6. A connection closed for a fault causes one Event and nothing else. Connections that
//     clients close between requests, and resets, cause none.
//
// # Faults
//
// Size or header that make no sense, an unknown API key, a TLS hello, HTTP, a frame over
// MaxRequestBytes, cut, or late, a client that takes no response or is idle too long: the
// connection is closed, what is pending on it is waited for and released unwritten. An
// unsupported version of a known API is left to the handler (ApiVersions answers it).
//
// Response slices may point into file mappings. If a page can't be read, writev returns EFAULT;
// under TLS, and in handlers, the read faults in user code, which both goroutines turn into a
// panic (debug.SetPanicOnFault) and recover. Either way the connection is closed with
// EventFault. Any other panic is a bug and ends the process: who knows which locks it held.
//
// # Shutdown
//
// Shutdown closes the listeners, wakes the readers, and cancels the connections' contexts with
// ErrShutdown, upon which long polls answer with what they have. Everything handled is still
// answered; frames read in part are dropped. Then the connections are closed.
//
// # What it never does
//
// It does not authenticate (Conn.SetValue is where a SASL state will live), throttle, retry, or
// log, and it copies no record: requests are slices of the network buffer, responses slices of
// whatever holds them. TLS is the exception, which must read what it encrypts.
package kafka
