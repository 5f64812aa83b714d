package admin

import (
	"embed"
	"errors"
	"net/http"
	"path"
)

//go:embed console
var consoleFiles embed.FS

// console serves the page and its two files; everything else is not found.
func console(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		writeError(w, http.StatusMethodNotAllowed, errors.New("no such route: "+r.Method+" "+r.URL.Path))
		return
	}
	name, kind := "", ""
	switch r.URL.Path {
	case "/":
		name, kind = "index.html", "text/html; charset=utf-8"
	case "/console.css":
		name, kind = "console.css", "text/css; charset=utf-8"
	case "/console.js":
		name, kind = "console.js", "text/javascript; charset=utf-8"
	default:
		writeError(w, http.StatusNotFound, errors.New("nothing here: the console is /, the API /api/v1/..., metrics are /metrics"))
		return
	}
	data, err := consoleFiles.ReadFile(path.Join("console", name))
	if err != nil {
		writeError(w, http.StatusInternalServerError, err)
		return
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-cache")
	send(w, data)
}
