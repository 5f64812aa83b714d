package bucket

import (
	"fmt"
	"strings"
)

const (
	// MaxKey is the most bytes a key may have, the URL's prefix not counted.
	MaxKey = 900
	// maxSegment leaves room for what a directory adds to a name.
	maxSegment = 240
)

// CheckKey tells whether key may name an object: 1 to MaxKey bytes, segments of 1 to 240 bytes separated by "/", made of ASCII
// letters, digits and "-_.=", none of them "." or "..". No store, proxy or file system known to us treats any of these specially.
func CheckKey(key string) error {
	if key == "" {
		return newError("key", key, ErrKey, fmt.Errorf("it is empty"))
	}
	if err := checkPrefix(key); err != nil {
		return err
	}
	for seg := range strings.SplitSeq(key, "/") {
		switch {
		case seg == "":
			return newError("key", key, ErrKey, fmt.Errorf("it has an empty segment"))
		case seg == "." || seg == "..":
			return newError("key", key, ErrKey, fmt.Errorf("segment %q is not allowed", seg))
		case len(seg) > maxSegment:
			return newError("key", key[:maxSegment], ErrKey, fmt.Errorf("a segment has %d bytes, at most %d are allowed", len(seg), maxSegment))
		}
	}
	return nil
}

// checkPrefix checks length and alphabet only: a prefix may end anywhere.
func checkPrefix(p string) error {
	if len(p) > MaxKey {
		return newError("key", p[:maxSegment], ErrKey, fmt.Errorf("it has %d bytes, at most %d are allowed", len(p), MaxKey))
	}
	for i := range len(p) {
		if c := p[i]; !keyByte(c) && c != '/' {
			return newError("key", fmt.Sprintf("%q", p), ErrKey, fmt.Errorf("byte %q is not allowed", c))
		}
	}
	return nil
}

func keyByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.' || c == '='
}

// CheckGet checks the arguments of a Get; every implementation calls it first.
func CheckGet(key string, off, n int64, dst []byte) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	if off < 0 || n < 0 || off > 1<<62 || n > int64(len(dst)) {
		return newError("get", key, ErrRange, fmt.Errorf("offset %d, length %d, buffer of %d", off, n, len(dst)))
	}
	return nil
}

// CheckPut checks the arguments of a Put; every implementation calls it first.
func CheckPut(key string, body Body, cond Condition) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	if cond.IfNoneMatch && cond.IfMatch != "" {
		return newError("put", key, ErrRefused, fmt.Errorf("both conditions are set"))
	}
	if n := body.Size(); n < 0 || n > MaxObject {
		return newError("put", key, ErrTooLarge, fmt.Errorf("%d bytes, at most %d can be put at once", n, int64(MaxObject)))
	}
	return nil
}

// CheckList checks the arguments of a List or Uploads; every implementation calls it first.
func CheckList(prefix, after string) error {
	if err := checkPrefix(prefix); err != nil {
		return err
	}
	return checkPrefix(after)
}

// MaxObject is the largest body a Put takes: S3's limit for a single put.
const MaxObject = 5 << 30

// pageSize puts List's max into its limits.
func pageSize(max int) int {
	if max <= 0 || max > MaxList {
		return MaxList
	}
	return max
}
