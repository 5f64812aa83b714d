// Package batch owns Kafka's record-batch format version 2, the one currency of the
// system: parsing, checking, stamping, walking and building batches.
//
// # Format
//
// All header numbers are big-endian:
//
//	 0  base offset          i64 \
//	 8  length               i32  | the prefix: outside of the CRC, so that a broker
//	12  leader epoch         i32  | may set offset and epoch without encoding anything
//	16  magic                i8   | anew
//	17  crc                  u32 /
//	21  attributes           i16   bits 0-2 codec, 3 log append time, 4 transactional,
//	                               5 control, 6 delete horizon
//	23  last offset delta    i32
//	27  first timestamp      i64   ms since 1970; -1 = none
//	35  max timestamp        i64
//	43  producer id          i64   -1 = none
//	51  producer epoch       i16
//	53  first sequence       i32
//	57  record count         i32
//	61  records, compressed together by the codec
//
// length counts what follows it, so a batch takes length + 12 bytes. crc is CRC32C
// (Castagnoli) of everything from byte 21 on. A record:
//
//	length        varint   of the rest of the record
//	attributes    i8       unused
//	timestamp     varint   minus first timestamp
//	offset        varint   minus base offset
//	key           varint length (-1 = null), bytes
//	value         varint length (-1 = null), bytes
//	headers       varint count, then key (varint length, bytes) and value (varint
//	              length, -1 = null, bytes) of each
//
// varints are zigzag encoded. Codecs: gzip (1), snappy (2: xerial's framing, or one raw
// block), lz4 frames (3), zstd (4).
//
// # Rules
//
//  1. Bytes are kept as the client sent them. Exceptions, all in place: [Stamp] (outside
//     of the CRC); [StampAppendTime]; and [Validate], which corrects a wrong max
//     timestamp in the header of a batch whose records it walked, as Kafka does.
//  2. What [Validate] accepts, every function here can read. (A compressed batch is only
//     read inside when [Limits] asks for it: undecodable records are then the consumer's
//     find, as is its right.)
//  3. Nothing is allocated because a length announces it. A decompressed batch is
//     streamed through a window that holds one record at a time; the total is capped.
//     A zstd or lz4 decoder holds its window besides (at most 128 MiB, 8 MiB).
//  4. No record is allocated. Slices handed to callbacks are valid during the call.
//  5. Nothing panics on hostile bytes.
//
// The package imports nothing of tierbroker, does no I/O, keeps no state but pools, and is
// safe for concurrent use on different batches.
package batch
