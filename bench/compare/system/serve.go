package system

// servers are brokers in this program: each runs in a process of its own that is this program again, called with the name and its arguments.
var servers = map[string]func(args []string){}

// Serve runs the broker that the arguments name, and tells whether there was one.
func Serve(args []string) bool {
	serve := servers[args[0]]
	if serve != nil {
		serve(args[1:])
	}
	return serve != nil
}
