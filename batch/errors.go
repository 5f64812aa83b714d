package batch

import (
	"errors"
	"fmt"
)

// What a batch may be refused for; test with errors.Is. Each names the answer Kafka gives.
var (
	// ErrShort: the bytes end before the batch does, or its length field is too small
	// (CORRUPT_MESSAGE).
	ErrShort = errors.New("batch: cut short")
	// ErrMagic: a message format other than 2 (UNSUPPORTED_FOR_MESSAGE_FORMAT).
	ErrMagic = errors.New("batch: message format is not 2")
	// ErrCRC: the checksum doesn't match (CORRUPT_MESSAGE).
	ErrCRC = errors.New("batch: checksum mismatch")
	// ErrTooLarge: above the size limit, encoded (MESSAGE_TOO_LARGE) or decompressed.
	ErrTooLarge = errors.New("batch: too large")
	// ErrTimestamp: outside of the topic's limits, or a timestamp type that only a broker
	// sets (INVALID_TIMESTAMP).
	ErrTimestamp = errors.New("batch: timestamp not allowed")
	// ErrCount: record count and last offset do not agree (INVALID_RECORD).
	ErrCount = errors.New("batch: wrong record count")
	// ErrCodec: a compression codec that does not exist (UNSUPPORTED_COMPRESSION_TYPE).
	ErrCodec = errors.New("batch: unknown compression codec")
	// ErrRecord: a record, or a header field, breaks a rule (INVALID_RECORD).
	ErrRecord = errors.New("batch: invalid record")
)

// RecordError says which record of a batch was refused, and why. It is an ErrRecord, or
// an ErrTimestamp.
type RecordError struct {
	Index int // of the record within the batch, from 0
	Msg   string
	err   error
}

// Error returns the reason with the record's index.
func (e *RecordError) Error() string {
	return fmt.Sprintf("%v: record %d: %s", e.Unwrap(), e.Index, e.Msg)
}

// Unwrap returns ErrRecord or ErrTimestamp.
func (e *RecordError) Unwrap() error {
	if e.err != nil {
		return e.err
	}
	return ErrRecord
}
