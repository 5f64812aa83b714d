package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// changeTime bounds one change of the cluster.
const changeTime = 20 * time.Second

// readBody decodes a request's JSON, an empty one as {}. It answers itself and returns false when that fails; form says
// what a right body looks like.
func readBody(w http.ResponseWriter, r *http.Request, v any, form string) bool {
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	err := decoder.Decode(v)
	if err == nil || errors.Is(err, io.EOF) {
		return true
	}
	if tooLong := new(http.MaxBytesError); errors.As(err, &tooLong) {
		writeError(w, http.StatusRequestEntityTooLarge, fmt.Errorf("the body is larger than %d bytes: send it in parts", tooLong.Limit))
		return false
	}
	writeError(w, http.StatusBadRequest, fmt.Errorf("the body is not %s: %w", form, err))
	return false
}
