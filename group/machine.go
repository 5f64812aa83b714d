package group

// Machine is all groups of one shard. It is not safe for concurrent use; doc.go has the rules of its owner.
type Machine struct{ opts Options }
