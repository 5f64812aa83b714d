// Package buckettest is the conformance suite of bucket.Bucket: what it checks is what callers may rely on. Every
// implementation and decorator passes it, and so does every S3 server that is supported.
package buckettest
