package tier

import "context"

// RetentionDue reports whether Retain would drop anything. It makes no claim and no swap, and reads at most one page per level:
// an idle broker asks it again and again.
func (a *Archive) RetentionDue(ctx context.Context, h *Head, r Retention) (bool, error) {
	start, err := a.cut(ctx, h, r)
	return start > h.Start, err
}

// MergeDue reports whether Merge would find neighbours that are worth merging. It costs no I/O.
func (a *Archive) MergeDue(h *Head, o MergeOptions) bool {
	o.setDefaults()
	from, to := o.pick(h.Extents, h.Start)
	return from != to
}
