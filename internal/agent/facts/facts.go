// Package facts writes down what a guest is told of its host: accounting and some experiments need the real processor,
// whatever model the VM shows.
package facts

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Path is where a guest finds the facts.
const Path = "/etc/grange/host"

// Fact is one line of that file, and one variable GRANGE_KEY of the job.
type Fact struct{ Key, Value string }

// Facts are those of one VM.
type Facts []Fact

// Add appends a fact.
func (f *Facts) Add(key, value string) { *f = append(*f, Fact{key, value}) }

// OfSite are the facts that a site configured, in the order of their keys.
func OfSite(configured map[string]string) (f Facts) {
	for _, k := range slices.Sorted(maps.Keys(configured)) {
		f = append(f, Fact{strings.ToUpper(k), configured[k]})
	}
	return f
}

// Environment leaves out the long list of flags: it is in the file.
func (f Facts) Environment() []string {
	var env []string
	for _, x := range f {
		if x.Key != "HOST_CPU_FLAGS" {
			env = append(env, "GRANGE_"+x.Key+"="+x.Value)
		}
	}
	return env
}

// File has one KEY=VALUE a line, without quotes.
func (f Facts) File() []byte {
	var b strings.Builder
	for _, x := range f {
		fmt.Fprintf(&b, "%s=%s\n", x.Key, strings.ReplaceAll(x.Value, "\n", " "))
	}
	return []byte(b.String())
}
