package tune

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/grange-project/grange/internal/cli/app"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/tuning"
)

// choice says which host is judged, by what wishes and which rules. Audit, plan and apply share it: what one finds, the
// next mends.
type choice struct {
	from, profile, role string
	only, skip          []string
}

var roles = []string{string(tuning.Compute), string(tuning.Service), string(tuning.Guest)}

// flags gives a command the flags of a choice but --from. The texts say what happens to a rule's findings.
func (c *choice) flags(cmd *cobra.Command, only, skip string) {
	flags := cmd.Flags()
	flags.StringVar(&c.profile, "profile", "",
		"`NAME` of a built-in profile, or a TOML file (default: the profile for the processor)")
	flags.StringVar(&c.role, "role", "",
		"role of the host: compute, service or guest (default: the profile's; guest in a VM that runs no VMs itself, "+
			"else compute)")
	flags.StringSliceVar(&c.only, "rule", nil, only+" (repeatable, or a list: a,b)")
	flags.StringSliceVar(&c.skip, "skip", nil, skip+" (repeatable, or a list: a,b)")
	app.Complete(cmd, "rule", ruleIDs)
	app.Complete(cmd, "skip", ruleIDs)
	app.Complete(cmd, "profile", profileNames)
	app.Complete(cmd, "role", func() []string { return roles })
}

// judge asks the rules about a host. notes tell which rules named by --rule were not asked; that nothing was found by
// no rule is no good news, and an error.
func (c choice) judge(h farm.HostFacts) (r tuning.Report, notes []string, err error) {
	if c.role != "" && !slices.Contains(roles, c.role) {
		return r, nil, app.UnknownWord("role", c.role, roles)
	}
	p, role, err := c.wanted(h)
	if err != nil {
		return r, nil, err
	}
	if r, err = tuning.Audit(h, p, role, tuning.Options{Only: c.only, Skip: c.skip}); err != nil {
		return r, nil, err
	}
	for _, s := range r.Skipped {
		if slices.Contains(c.only, s.Rule.ID) {
			notes = append(notes, s.Rule.ID+": "+s.Reason)
		}
	}
	if r.Applied == 0 {
		return r, nil, app.Usage("`grange tune explain RULE` shows for which roles a rule holds",
			"no rule is left to ask; %s", strings.Join(notes, "; "))
	}
	return r, notes, nil
}

// wanted is the profile and the role for a host: those asked for, or what fits.
func (c choice) wanted(h farm.HostFacts) (tuning.Profile, tuning.Role, error) {
	role := tuning.Role(c.role)
	if c.profile == "" {
		if role == "" {
			role = tuning.DefaultRole(h)
		}
		return tuning.Choose(h, role), role, nil
	}
	p, err := profileOf(c.profile)
	if role == "" {
		role = p.Role
	}
	return p, role, err
}

// words are the flags that made the choice, for the command that goes on from here.
func (c choice) words() string {
	text := ""
	for _, flag := range []struct{ name, value string }{{"from", c.from}, {"profile", c.profile}, {"role", c.role},
		{"rule", strings.Join(c.only, ",")}, {"skip", strings.Join(c.skip, ",")}} {
		if flag.value != "" {
			text += " --" + flag.name + " " + tuning.ShellWord(flag.value)
		}
	}
	return text
}

// tellNotes writes which rules were not asked.
func tellNotes(w io.Writer, notes []string) {
	for _, n := range notes {
		fmt.Fprintf(w, "not asked: %s\n", n)
	}
}

func ruleIDs() []string {
	var ids []string
	for _, r := range tuning.Rules() {
		ids = append(ids, r.ID+"\t"+r.Title)
	}
	return ids
}

func profileNames() []string {
	var names []string
	for _, p := range tuning.Profiles() {
		names = append(names, p.Name+"\t"+p.Title)
	}
	return names
}
