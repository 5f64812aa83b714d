package bucket

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// listing is one List of a Dir on its way: it walks folders in the order of keys and stops when the page is full.
type listing struct {
	ctx           context.Context
	prefix, after string
	max           int
	page          Page
}

// child is an entry of a folder: order is its key, with "/" for folders, because that is how their objects sort.
type child struct {
	order  string
	path   string
	folder bool
}

// List implements Bucket. It reads the folders that a page needs, one whole folder at a time, and no others.
func (d *Dir) List(ctx context.Context, _ Op, prefix, after string, max int) (Page, error) {
	if err := CheckList(prefix, after); err != nil {
		return Page{}, err
	}
	l := &listing{ctx: ctx, prefix: prefix, after: after, max: pageSize(max)}
	start := prefix[:strings.LastIndexByte(prefix, '/')+1]
	if start == "" {
		if _, err := l.walk(d.root, ""); err != nil {
			return Page{}, err
		}
	} else if folder := strings.TrimSuffix(start, "/"); CheckKey(folder) == nil {
		if _, err := l.walk(d.path(folder), start); err != nil {
			return Page{}, err
		}
	}
	if len(l.page.Items) == 0 {
		if err := d.present("list", prefix); err != nil {
			return Page{}, err
		}
	}
	return l.page, nil
}

// walk adds the objects below the folder dir, whose keys begin with base; false means that the page is full.
func (l *listing) walk(dir, base string) (bool, error) {
	if err := l.ctx.Err(); err != nil {
		return false, newError("list", l.prefix, ErrUnavailable, err)
	}
	children, err := l.children(dir, base)
	if err != nil {
		return false, err
	}
	for _, c := range children {
		more := true
		if c.folder {
			more, err = l.walk(c.path, c.order)
		} else {
			more, err = l.add(c)
		}
		if !more || err != nil {
			return false, err
		}
	}
	return true, nil
}

// children returns the entries of dir that can hold objects of the listing, in order.
func (l *listing) children(dir, base string) ([]child, error) {
	entries, err := os.ReadDir(dir)
	if isMissing(err) {
		return nil, nil // pruned meanwhile, or never there
	}
	if err != nil {
		return nil, fileError("list", l.prefix, err)
	}
	var cs []child
	for _, e := range entries {
		name, ok := unescapeName(e.Name())
		if !ok {
			continue
		}
		c := child{order: base + name, path: filepath.Join(dir, e.Name()), folder: e.IsDir()}
		switch {
		case c.folder:
			c.order += "/"
			below := strings.HasPrefix(c.order, l.prefix) || strings.HasPrefix(l.prefix, c.order)
			if !below || c.order < l.after && !strings.HasPrefix(l.after, c.order) {
				continue
			}
		case !e.Type().IsRegular() || !strings.HasPrefix(c.order, l.prefix) || c.order <= l.after:
			continue
		}
		cs = append(cs, c)
	}
	slices.SortFunc(cs, func(a, b child) int { return strings.Compare(a.order, b.order) })
	return cs, nil
}

func (l *listing) add(c child) (bool, error) {
	st, err := os.Lstat(c.path)
	if isMissing(err) {
		return true, nil // removed meanwhile
	}
	if err != nil {
		return false, fileError("list", l.prefix, err)
	}
	if !st.Mode().IsRegular() || CheckKey(c.order) != nil {
		return true, nil
	}
	if len(l.page.Items) == l.max {
		l.page.Next = l.page.Items[l.max-1].Key
		return false, nil
	}
	l.page.Items = append(l.page.Items, fileInfo(c.order, st))
	return true, nil
}
