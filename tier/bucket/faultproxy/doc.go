// Package faultproxy is a TCP proxy on 127.0.0.1 that stands in front of a real S3 server and spoils what passes, as a Mode
// says that can be switched at any time: for tests of what a broker does when its bucket is unwell.
//
// It understands as much HTTP/1.1 as it needs: where the header of a message ends, and how long its body is. Everything else
// passes byte for byte, the Host header too, which AWS signatures cover. So a signed request is still valid behind the proxy,
// and what the mode does happens to bytes on their way, as on a network: bodies of answers to GET are cut or flipped after
// the server has sent them, bodies of PUT flipped before it gets them.
//
// A mode applies to requests whose header arrives after it was set; Hang ends when the mode changes. Refuse and Break also
// end connections that are open.
package faultproxy
