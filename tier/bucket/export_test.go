package bucket

var (
	EscapeKey    = escapeKey
	UnescapeName = unescapeName
)
