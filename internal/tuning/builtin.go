package tuning

import (
	"embed"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
)

//go:embed profiles/*.toml
var profileFiles embed.FS

// Profiles are the built-in ones, in the order of their names. A test reads each, so none of them is an error here.
func Profiles() []Profile {
	entries, err := profileFiles.ReadDir("profiles")
	if err != nil {
		panic(err) // it is part of this program
	}
	var all []Profile
	for _, e := range entries {
		p, err := ParseProfile([]byte(profileText(e.Name())), e.Name())
		if err != nil {
			panic(err)
		}
		all = append(all, p)
	}
	return all
}

func profileText(file string) string {
	text, err := profileFiles.ReadFile(path.Join("profiles", file))
	if err != nil {
		panic(err)
	}
	return string(text)
}

// ProfileByName is a built-in profile and its text, which a site may edit. The error for a name that is none has
// farm.CodeNoProfile.
func ProfileByName(name string) (Profile, string, error) {
	var names []string
	for _, p := range Profiles() {
		if p.Name == name {
			return p, profileText(name + ".toml"), nil
		}
		names = append(names, p.Name)
	}
	return Profile{}, "", &farm.Error{Kind: farm.NotFound, Code: farm.CodeNoProfile,
		Message: fmt.Sprintf("no profile %q", name),
		Hint:    "one of " + strings.Join(names, ", ") + ", or a file of your own"}
}

// Choose is the built-in profile for a host in a role: the one that describes its processor most closely, or the
// generic one of the role. For a role that is none it is an empty profile, which wants nothing.
func Choose(h farm.HostFacts, role Role) Profile {
	best, closest := Profile{Role: role, Swappiness: -1}, -1
	for _, p := range Profiles() {
		if p.Role != role {
			continue
		}
		if n := p.Match.closeness(h.Topology.CPU); n > closest {
			best, closest = p, n
		}
	}
	return best
}

// closeness is how closely a match describes a processor: -1 not at all, 0 as any other.
func (m Match) closeness(c farm.CPUModel) int {
	named := slices.ContainsFunc(m.Models, func(name string) bool { return strings.Contains(c.Name, name) })
	switch {
	case m.OnlyNamed,
		m.Vendor != "" && m.Vendor != c.Vendor,
		len(m.Models) > 0 && !named,
		m.Family != 0 && m.Family != c.Family,
		c.Model < m.MinModel,
		m.MaxModel != 0 && c.Model > m.MaxModel:
		return -1
	}
	n := 0
	for _, given := range []bool{m.Vendor != "", m.Family != 0, m.MinModel != 0 || m.MaxModel != 0, named, named} {
		if given {
			n++
		}
	}
	return n
}
