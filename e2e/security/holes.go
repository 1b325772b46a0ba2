package main

// attacks are all attacks, by hole. Each hole's are in a file of its own.
var attacks = []attack{
	{"H4", "a host and a user go on while their address sends wrong tokens and unknown join tokens", floodedHost},
}

// roles are what this program does under another account, by name; see account.act.
var roles = map[string]func(args []string) error{}
