package account

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	putLine  = "tester bbb [29/November/2026:23:01:16 +0000] 127.0.0.1 tester S7GX5CNE8C4V4IMO s3_PutObject bench/data/00/t/0/a.tbd /bbb/bench/data/00/t/0/a.tbd 200 - 0 9437184 88 88 - MinIO (linux; amd64) minio-go/v7.4.1 - 7Q2h= SigV4 - AuthHeader s3.us-east-1.amazonaws.com - arn:aws:s3:::/bbb/x Yes\n"
	getLine  = "tester bbb [29/November/2026:23:01:16 +0000] 127.0.0.1 tester ZOULIYHXMPZ1E01J s3_GetObject bench/data/00/t/0/a.tbd /bbb/bench/data/00/t/0/a.tbd 200 - 0 0 2 2 - MinIO (linux; amd64) minio-go/v7.4.1 - RL5= SigV4 - AuthHeader s3.us-east-1.amazonaws.com - arn:aws:s3:::/bbb/x Yes\n"
	lostLine = "tester bbb [29/November/2026:23:01:16 +0000] 127.0.0.1 tester ZOULIYHXMPZ1E01J s3_PutObject bench/head/00/t/0 /bbb/bench/head/00/t/0 412 PreconditionFailed 0 300 2 2 - MinIO (linux; amd64) minio-go/v7.4.1 - RL5= SigV4 - AuthHeader s3.us-east-1.amazonaws.com - arn:aws:s3:::/bbb/x Yes\n"
	listLine = "tester bbb [29/November/2026:23:01:16 +0000] 127.0.0.1 tester MTICYT6SR02SFD7I s3_ListObjectsV2 - /bbb/?delimiter=&prefix=data%2F 200 - 550 0 0 0 - MinIO (linux; amd64) minio-go/v7.4.1 - Ug= SigV4 - AuthHeader s3.us-east-1.amazonaws.com - arn:aws:s3:::/bbb/ Yes\n"
	partLine = "tester bbb [29/November/2026:23:01:16 +0000] 127.0.0.1 tester XCSFN8IAK6KL2IH1 s3_UploadPart bench/data/multi /bbb/data/multi?partNumber=3&uploadId=5b 200 - 0 0 36 36 - MinIO (linux; amd64) minio-go/v7.4.1 - GE= SigV4 - AuthHeader s3.us-east-1.amazonaws.com - arn:aws:s3:::/bbb/data/multi Yes\n"
	newLine  = "tester bbb [29/November/2026:23:01:16 +0000] 127.0.0.1 tester XCSFN8IAK6KL2IH1 s3_SomethingNew - /bbb/ 200 - 0 0 36 36 - x\n"
)

func TestAccessLogIsCountedByKindAndPrefix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.log")
	write := func(text string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	write("log starts 2026-11-29 23:01:12.5 +0000 UTC m=+0.06\n" + putLine + getLine)
	l := AccessLog{Path: path, PID: os.Getpid(), Root: "bench/"}
	mark, err := l.Mark()
	if err != nil {
		t.Fatal(err)
	}
	write(putLine + putLine + getLine + getLine + getLine + lostLine + listLine + partLine + newLine + putLine[:50])
	r, err := l.Since(mark)
	if err != nil {
		t.Fatal(err)
	}
	for req, want := range map[Request]int64{{Put, "data"}: 2, {Get, "data"}: 3, {Put, "head"}: 1, {List, ""}: 1, {Multipart, "data"}: 1, {Other, ""}: 1, {Get, "head"}: 0} {
		if got := r.Count[req]; got != want {
			t.Errorf("%v: %d, want %d", req, got, want)
		}
	}
	if r.Writes() != 4 || r.Reads() != 3 || r.Of("head", Put) != 1 || r.Failed[Request{Put, "head"}] != 1 {
		t.Errorf("%d writes, %d reads: %+v", r.Writes(), r.Reads(), r)
	}
	if r.Stored["data"] != 2*9437184 || r.Stored["head"] != 0 {
		t.Errorf("stored %v: what was refused isn't stored", r.Stored)
	}
	if r.Moved < int64(len(putLine)) {
		t.Errorf("%d bytes written by this process", r.Moved)
	}
}

func TestAccessLogThatMakesNoSense(t *testing.T) {
	for _, text := range []string{"hello\n", "a b [c] d e f\n", strings.Replace(getLine, " 200 ", " two ", 1), strings.Repeat("x", longestLine+1) + "\n"} {
		if _, err := readLog(strings.NewReader(text), ""); err == nil {
			t.Errorf("%.60q was counted", text)
		}
	}
	if _, err := (AccessLog{Path: filepath.Join(t.TempDir(), "none"), PID: os.Getpid()}).Mark(); err == nil {
		t.Error("a log that isn't there has a mark")
	}
}
