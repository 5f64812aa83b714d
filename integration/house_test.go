package integration

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/tierbroker/tierbroker"

// floors is the table of the house: each package with its floor. A package
// imports only packages of lower floors, and its own subpackages and parents
// that stand in the same row.
var floors = []struct {
	floor    int
	packages []string
}{
	{1, []string{"batch"}},
	{1, []string{"frame"}},
	{1, []string{"varint"}},
	{1, []string{"kafka"}},
	{1, []string{"config"}},
	{1, []string{"tier/bucket", "tier/bucket/s3", "tier/bucket/s3/s3test", "tier/bucket/buckettest", "tier/bucket/faultproxy"}},
	{2, []string{"segment"}},
	{2, []string{"index"}},
	{2, []string{"cache"}},
	{2, []string{"cluster"}},
	{2, []string{"peer"}},
	{3, []string{"tier", "tier/wal"}},
	{3, []string{"tier/catalog"}},
	{3, []string{"controller"}},
	{4, []string{"partition"}},
	{4, []string{"restore"}},
	{5, []string{"journal"}},
	{5, []string{"group"}},
	{5, []string{"txn"}},
	{6, []string{"broker"}},
	{6, []string{"admin"}},
	{7, []string{"cmd/tierbroker"}},
	{7, []string{"cmd/tierctl"}},
}

// guarded lists libraries, and packages of ours, that only some packages may
// import. Tests may look inside (a file layer, an etcd that two nodes share).
var guarded = []struct {
	prefix  string
	allowed []string
}{
	{"github.com/minio/minio-go", []string{"tier/bucket/s3"}},
	{"go.etcd.io/", []string{"cluster"}},
	{"github.com/cockroachdb/pebble", []string{"index"}},
	{"github.com/dgraph-io/ristretto", []string{"cache"}},
	{"github.com/prometheus/", []string{"admin"}},
	{"github.com/spf13/", []string{"cmd/tierbroker", "cmd/tierctl"}},
	{module + "/config", []string{"cmd/tierbroker"}},
	// Hot and cold meet only in partition; the programs compose and dump them.
	{module + "/segment", []string{"partition", "cmd/tierbroker", "cmd/tierctl"}},
	{module + "/index", []string{"partition", "cmd/tierbroker", "cmd/tierctl"}},
}

// pure lists packages that may not import these standard packages.
var pure = map[string][]string{
	"batch":  {"os", "net", "net/http"},
	"frame":  {"os", "net", "net/http"},
	"varint": {"os", "net", "net/http"},
}

var forbiddenNames = []string{"util", "utils", "common", "helper", "helpers", "misc", "shared"}

type goFile struct {
	path string // relative to the module's root
	pkg  string // folder, relative
	test bool
	text string
	ast  *ast.File
	fset *token.FileSet
}

func (f goFile) lines(n ast.Node) int {
	return f.fset.Position(n.End()).Line - f.fset.Position(n.Pos()).Line + 1
}

func sources(t *testing.T) []goFile {
	t.Helper()
	root := ".."
	var files []goFile
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && p != root && (strings.HasPrefix(name, ".") || slices.Contains([]string{"bin", "data", "testdata", "node_modules", "target"}, name)) {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") {
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, p, text, parser.ParseComments)
		if err != nil {
			return err
		}
		rel := filepath.ToSlash(strings.TrimPrefix(p, root+string(filepath.Separator)))
		files = append(files, goFile{path: rel, pkg: path.Dir(rel), test: strings.HasSuffix(name, "_test.go"), text: string(text), ast: parsed, fset: fset})
		return nil
	})
	require.NoError(t, err)
	require.NotEmpty(t, files)
	return files
}

// outside tells whether a folder stands outside the table.
func outside(pkg string) bool {
	top, _, _ := strings.Cut(pkg, "/")
	return top == "integration" || top == "bench" || top == "docs"
}

func place(pkg string) (floor, row int, ok bool) {
	for i, r := range floors {
		if slices.Contains(r.packages, pkg) {
			return r.floor, i, true
		}
	}
	return 0, 0, false
}

func TestPackageTable(t *testing.T) {
	for _, f := range sources(t) {
		if outside(f.pkg) {
			continue
		}
		floor, row, ok := place(f.pkg)
		if !ok {
			t.Errorf("%s: package %s has no floor in the table", f.path, f.pkg)
			continue
		}
		for _, spec := range f.ast.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			require.NoError(t, err)
			if slices.Contains(pure[f.pkg], imported) && !f.test {
				t.Errorf("%s imports %s, which package %s must not", f.path, imported, f.pkg)
			}
			if !f.test {
				checkGuarded(t, f, imported)
			}
			ours, isOurs := strings.CutPrefix(imported, module+"/")
			if !isOurs || f.test || ours == f.pkg {
				continue
			}
			otherFloor, otherRow, ok := place(ours)
			switch {
			case !ok:
				t.Errorf("%s imports %s, which has no floor in the table", f.path, ours)
			case otherRow != row && otherFloor >= floor:
				t.Errorf("%s (floor %d) imports %s (floor %d): only lower floors", f.path, floor, ours, otherFloor)
			}
		}
	}
}

func checkGuarded(t *testing.T, f goFile, imported string) {
	t.Helper()
	for _, g := range guarded {
		if imported != strings.TrimSuffix(g.prefix, "/") && !strings.HasPrefix(imported, strings.TrimSuffix(g.prefix, "/")+"/") {
			continue
		}
		inOwn := g.prefix == module+"/"+f.pkg
		if !inOwn && !slices.Contains(g.allowed, f.pkg) {
			t.Errorf("%s imports %s: only %s may", f.path, imported, strings.Join(g.allowed, ", "))
		}
	}
}

func TestHouseRules(t *testing.T) {
	documented := make(map[string]bool)
	packages := make(map[string]bool)
	for _, f := range sources(t) {
		if slices.Contains(forbiddenNames, path.Base(f.pkg)) {
			t.Errorf("%s: a package named %s owns nothing", f.path, path.Base(f.pkg))
		}
		if !f.test {
			packages[f.pkg] = true
			if f.ast.Doc != nil && len(f.ast.Doc.Text()) > 80 {
				documented[f.pkg] = true
			}
		}
		checkText(t, f)
	}
	for pkg := range packages {
		if !documented[pkg] {
			t.Errorf("package %s lacks a package comment that says what it owns", pkg)
		}
	}
}

// checkText looks for words that mean "not finished" or "not dependable". They
// are assembled here so that this file doesn't hold them.
func checkText(t *testing.T, f goFile) {
	t.Helper()
	for _, group := range f.ast.Comments {
		for _, word := range []string{"TO" + "DO", "FIX" + "ME", "XX" + "X"} {
			if strings.Contains(group.Text(), word) {
				t.Errorf("%s: a comment holds %s", f.fset.Position(group.Pos()), word)
			}
		}
	}
	if !f.test {
		return
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		switch sel.Sel.Name {
		case "Skip", "Skipf", "SkipNow":
			if x, ok := sel.X.(*ast.Ident); ok && (x.Name == "t" || x.Name == "b" || x.Name == "tb") {
				t.Errorf("%s: a test that skips itself proves nothing", f.fset.Position(n.Pos()))
			}
		case "Sleep":
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" && !outside(f.pkg) {
				t.Errorf("%s: wait for a condition instead of sleeping", f.fset.Position(n.Pos()))
			}
		}
		return true
	})
}

// TestSizes fails on what is far too large and reports what is a little so.
func TestSizes(t *testing.T) {
	const (
		fileAim, fileLimit     = 400, 500
		funcAim, funcLimit     = 70, 100
		methodAim, methodLimit = 8, 9
	)
	type finding struct {
		what       string
		size, over int
	}
	var report []finding
	measure := func(what string, size, aim, limit int) {
		if size > limit {
			t.Errorf("%s: %d, at most about %d", what, size, aim)
		} else if size > aim {
			report = append(report, finding{what, size, size - aim})
		}
	}
	var total, tests int
	for _, f := range sources(t) {
		n := strings.Count(f.text, "\n")
		if f.test {
			tests += n
			continue
		}
		total += n
		measure(f.path+": lines", n, fileAim, fileLimit)
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch d := n.(type) {
			case *ast.FuncDecl:
				measure(fmt.Sprintf("%s: lines of func %s", f.path, d.Name.Name), f.lines(d), funcAim, funcLimit)
			case *ast.TypeSpec:
				if i, ok := d.Type.(*ast.InterfaceType); ok {
					measure(fmt.Sprintf("%s: methods of interface %s", f.path, d.Name.Name), i.Methods.NumFields(), methodAim, methodLimit)
				}
			}
			return true
		})
	}
	slices.SortFunc(report, func(a, b finding) int { return cmp.Compare(b.over, a.over) })
	t.Logf("%d lines of code, %d of tests; over the aim, within the limit: %d", total, tests, len(report))
	for _, r := range report {
		t.Logf("%s: %d", r.what, r.size)
	}
}
