package segment

import "sort"

// FileBase returns the range of positions of the file that holds pos, [base, end); false when there is no such file.
func (l *Log) FileBase(pos uint64) (base, end uint64, ok bool) {
	files := *l.files.Load()
	i := sort.Search(len(files), func(i int) bool { return files[i].base > pos }) - 1
	if i < 0 || pos >= files[i].base+files[i].capacity {
		return 0, 0, false
	}
	return files[i].base, files[i].base + files[i].capacity, true
}

// Holds says whether the referenced file is the one that holds pos.
func (r *Ref) Holds(pos uint64) bool { return pos >= r.f.base && pos < r.f.base+r.f.capacity }
