// Package s3 is the bucket in an S3-compatible store, through minio-go, which no other package imports.
//
// Requests go through lanes, one for each class of operations (bucket.Op.Class): a lane has its own concurrency, its own
// deadline for one attempt (longer for large bodies), and its own hold-off. When the store says 503 SlowDown, the whole lane
// waits, with jitter and growing pauses, and tries again until the caller's context ends. Other failures that may pass are
// tried three times. minio-go itself never retries.
//
// Puts are single PUT requests of at most 5 GiB, never multipart: multipart uploads drop If-Match and If-None-Match. They carry
// the body's CRC32C as a header, over http and https, with the payload outside the signature; the body is also checked while
// it is read, so a wrong one never completes a request. Conditional puts are sent exactly once: nothing below the caller
// repeats them. The one exception is a request that the store refused because the credentials had expired: it had no effect,
// so it is sent again with new ones.
//
// Credentials come, in this order, from the AWS environment variables, the shared files (AWS_PROFILE, AWS_CONFIG_FILE,
// AWS_SHARED_CREDENTIALS_FILE), and web identity, container or instance metadata.
//
// Errors are one sentence that names what to change; they match the sentinels of package bucket.
package s3
