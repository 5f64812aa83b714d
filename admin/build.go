package admin

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// commit is set by the linker in builds without the version control's stamp.
var commit string

// Build says in one line what a program was built from: its name, version, commit, and Go's version and the platform. The
// version is what the linker was given; the commit is left out where the build knew none.
func Build(program, version string) string {
	parts := []string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		settings := map[string]string{}
		for _, s := range info.Settings {
			settings[s.Key] = s.Value
		}
		if revision := cmp.Or(settings["vcs.revision"], commit); revision != "" {
			text := "commit " + revision[:min(len(revision), 12)]
			if settings["vcs.modified"] == "true" {
				text += " with changes"
			}
			parts = append(parts, text)
		}
	}
	parts = append(parts, runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH)
	return fmt.Sprintf("%s %s (%s)", program, version, strings.Join(parts, ", "))
}
