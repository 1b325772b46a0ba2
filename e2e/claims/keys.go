package main

import (
	"regexp"
	"slices"
)

var (
	tag     = regexp.MustCompile(`toml:"([a-z0-9_]+)`)
	keyLine = regexp.MustCompile(`^#?\s*([a-z][a-z0-9_]*) = `)
)

// sites are names in the place of keys that a site makes up.
var sites = []string{"eno2"}

// keysOf are the keys of all configurations that the program reads.
func keysOf(c code) map[string]bool {
	all := map[string]bool{}
	for _, m := range tag.FindAllStringSubmatch(c.text, -1) {
		all[m[1]] = true
	}
	return all
}

// checkKeys compares the keys in blocks of TOML.
func checkKeys(known map[string]bool, p page) (n int, problems []problem) {
	for _, b := range p.fence {
		if b.language != "toml" {
			continue
		}
		for i, line := range joined(b.text) {
			m := keyLine.FindStringSubmatch(line)
			if m == nil {
				continue
			}
			n++
			if !known[m[1]] && !slices.Contains(sites, m[1]) {
				problems = append(problems, problem{p.name, b.line + i, "no configuration has the key " + m[1]})
			}
		}
	}
	return n, problems
}
