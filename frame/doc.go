// Package frame owns the header that stands in front of every entry of the
// CommitLog and of WAL objects: its bytes, its checks, and the names of topics
// and partitions that the floors above use as keys.
//
// # Format
//
// All numbers are big-endian. A frame is a header, its extensions, and a payload:
//
//	 0        4        8  9  10 11 12    14    16
//	+--------+--------+--+--+--+--+-----+-----+
//	| magic  |  crc   |v |t |f |0 | hlen|  0  |
//	+--------+--------+--+--+--+--+-----+-----+--------+
//	16       | log incarnation    u64                  |
//	24       | position           u64                  |
//	32       | synced             u64                  |
//	40       | topic id           16 bytes             |
//	56       | partition i32      | epoch       i32    |
//	64       | base offset        i64                  |
//	72       | record count i32   | key id      u32    |
//	80       | append time        i64, ms since 1970   |
//	88       | payload length u32 |                    |
//	         +--------------------+--------------------+
//	92       | extensions: (type u16, length u16, value)* up to hlen
//	hlen     | payload
//
// magic is "TBfr". v is the format version, t the [Type], f the flags, hlen the
// length of the header with its extensions. The bytes marked 0 are written as
// zero and ignored when read.
//
// crc is CRC32C (Castagnoli) over the header from byte 8 to hlen, followed by the
// first 21 bytes of the payload (all of it when it is shorter). Those 21 bytes of a
// Kafka batch (base offset, length, leader epoch, magic, and Kafka's own CRC) lie
// outside of Kafka's CRC, so both checksums together cover every byte.
//
// An extension whose type has the bit [ExtRequired] set must be understood by the
// reader; others may be ignored.
//
// # Promises
//
//  1. Magic, crc, v, t, hlen and payload length keep their place and meaning, and
//     the crc keeps its rule, in every later version: a reader can check and step
//     over a frame that it does not understand.
//  2. [Decode] reports [ErrVersion] only for frames whose checksum is right. So
//     ErrVersion means "written by a newer program", never "damaged".
//  3. Log incarnation and position are part of what the crc covers. A reader that
//     compares them with the log it reads and the place it read from can never take
//     a leftover of a recycled file for data.
//  4. Control payloads are at most 21 bytes, so the header's crc covers them whole.
//  5. Nothing here panics on, or allocates by the announcement of, hostile bytes.
//
// Alignment and padding of frames belong to package segment. The package does no
// I/O, keeps no state, and is safe for concurrent use.
package frame
