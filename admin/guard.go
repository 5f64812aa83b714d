package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// policy forbids the console everything but its own files.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// guard puts limits and protection around every route.
func guard(next http.Handler, loopback bool) http.Handler {
	crossSite := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", policy)
		h.Set("Referrer-Policy", "no-referrer")
		if loopback && !localName(r.Host) {
			writeError(w, http.StatusForbidden, fmt.Errorf("host %q is not this machine: use 127.0.0.1 or localhost", r.Host))
			return
		}
		switch r.Method {
		case http.MethodGet, http.MethodHead:
		case http.MethodPost:
			if err := crossSite.Check(r); err != nil {
				writeError(w, http.StatusForbidden, errors.New("requests from other sites are refused"))
				return
			}
			kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
			if err != nil || kind != "application/json" {
				writeError(w, http.StatusUnsupportedMediaType, errors.New("send Content-Type: application/json"))
				return
			}
		default:
			h.Set("Allow", "GET, HEAD, POST")
			writeError(w, http.StatusMethodNotAllowed, errors.New("there are GET, HEAD and POST, not "+r.Method))
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		next.ServeHTTP(w, r)
	})
}

// localName tells whether a Host header means this machine by address or by the
// name localhost. A page that rebinds its own name to 127.0.0.1 sends that name.
func localName(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	_, err := netip.ParseAddr(host)
	return err == nil
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		writeError(w, http.StatusInternalServerError, err)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	send(w, append(data, '\n'))
}

func writeError(w http.ResponseWriter, status int, err error) {
	writeJSON(w, status, map[string]string{"error": err.Error()})
}

// send writes a response body. A failure means that the client has gone, which
// concerns nobody else.
func send(w http.ResponseWriter, data []byte) {
	_, _ = w.Write(data)
}

// faultLog gives net/http a logger that ends in OnFault.
func faultLog(onFault func(error)) *log.Logger {
	return log.New(faultWriter(onFault), "", 0)
}

type faultWriter func(error)

func (f faultWriter) Write(p []byte) (int, error) {
	text := strings.TrimSpace(string(p))
	// A port scanner or a TLS hello is no news for the operator of a plain port.
	if !strings.Contains(text, "TLS handshake error") {
		f(errors.New("admin: " + text))
	}
	return len(p), nil
}
