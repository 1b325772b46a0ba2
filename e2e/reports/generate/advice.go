package generate

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing/fstest"

	"github.com/grange-project/grange/internal/hostfacts"
	"github.com/grange-project/grange/internal/tuning"
	"github.com/grange-project/grange/internal/tuning/tuningtest"
)

// Tree is a recorded host: its files by name.
type Tree map[string]string

// Archive is a txtar file: the text before its first file, and its files.
func Archive(path string) (head string, files Tree, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", nil, err
	}
	name, files := "", Tree{}
	for line := range strings.Lines(string(text)) {
		inner, ok := strings.CutPrefix(line, "-- ")
		inner, closed := strings.CutSuffix(inner, " --\n")
		switch {
		case ok && closed:
			name = inner
			files[name] = ""
		case name == "":
			head += line
		default:
			files[name] += line
		}
	}
	return head, files, nil
}

// Over returns the tree with other files laid over it: a file whose text is "-" removes that one, or all below a
// directory of its name.
func (t Tree) Over(files Tree) Tree {
	out := maps.Clone(t)
	for name, text := range files {
		if text == "-\n" {
			maps.DeleteFunc(out, func(have, _ string) bool { return have == name || strings.HasPrefix(have, name+"/") })
		}
	}
	for name, text := range files {
		if text != "-\n" {
			out[name] = text
		}
	}
	return out
}

// host is a recorded host, and the profile that its archive wants; nil where the audit chooses one.
type host struct {
	name    string
	tree    Tree
	profile *tuning.Profile
	role    tuning.Role
}

// Advice follows the advice of each finding on all recorded hosts of the repository at root, one by one, and audits
// again. No finding may come that is as severe as the one whose advice was followed, and none may become more severe.
func Advice(root string) (Result, error) {
	var r Result
	hosts, err := recorded(root)
	if err != nil {
		return r, err
	}
	for _, h := range hosts {
		before, err := h.audit(h.tree)
		if err != nil {
			return r, fmt.Errorf("%s: %w", h.name, err)
		}
		for _, f := range before {
			if len(f.Changes)+len(f.Edits) == 0 {
				continue
			}
			r.add(h.follow(before, f), func() string { return fmt.Sprintf("%s: %s, %s", h.name, f.Rule, f.Where) })
		}
	}
	return r, nil
}

// recorded are the hosts of the audit's own archives, both halves of each, and those of public reports.
func recorded(root string) (out []host, err error) {
	dir := filepath.Join(root, "internal/tuning/testdata")
	_, base, err := Archive(filepath.Join(dir, "rules/base.txtar"))
	if err != nil {
		return nil, err
	}
	_, guest, err := Archive(filepath.Join(dir, "rules/base-guest.txtar"))
	if err != nil {
		return nil, err
	}
	for _, pattern := range []string{dir + "/rules/*.txtar", dir + "/hosts/*.txtar",
		filepath.Join(root, "internal/tuning/verify/testdata/*.txtar"),
		filepath.Join(root, "e2e/reports/testdata/*.txtar")} {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			return nil, fmt.Errorf("no archives are called %s: %w", pattern, err)
		}
		for _, path := range paths {
			more, err := hostsOf(root, path, base, guest)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			out = append(out, more...)
		}
	}
	return out, nil
}

// hostsOf are the hosts of one archive.
func hostsOf(root, path string, base, guest Tree) (out []host, err error) {
	head, files, err := Archive(path)
	if err != nil {
		return nil, err
	}
	name := strings.TrimSuffix(filepath.Base(path), ".txtar")
	role := tuning.Role(strings.TrimSpace(files["role"]))
	if role == tuning.Guest {
		base = guest
	}
	for _, side := range []string{"fires", "quiet"} {
		below := Tree{}
		for file, text := range files {
			if rest, ok := strings.CutPrefix(file, side+"/"); ok {
				below[rest] = text
			}
		}
		if len(below) == 0 {
			continue
		}
		h := host{name: name + " " + side, tree: base.Over(below), role: role}
		if text := below["profile.toml"]; text != "" {
			p, err := tuning.ParseProfile([]byte(text), "profile.toml")
			if err != nil {
				return nil, err
			}
			h.profile = &p
		}
		out = append(out, h)
	}
	if len(out) > 0 {
		return out, nil
	}
	for line := range strings.Lines(head) {
		if over, ok := strings.CutPrefix(strings.TrimSpace(line), "Over: "); ok {
			_, under, err := Archive(filepath.Join(root, over))
			if err != nil {
				return nil, err
			}
			files = under.Over(files)
		}
	}
	if below := filepath.Join(filepath.Dir(path), "host.txtar"); below != path {
		if _, under, err := Archive(below); err == nil {
			files = under.Over(files)
		}
	}
	if !hasHost(files) {
		return nil, nil // a test that the repository runs itself
	}
	return []host{{name: name, tree: files}}, nil
}

func hasHost(files Tree) bool {
	for name := range files {
		if strings.HasPrefix(name, "sys/") {
			return true
		}
	}
	return false
}

// audit returns what all rules find in a tree.
func (h host) audit(tree Tree) ([]tuning.Finding, error) {
	fsys := fstest.MapFS{}
	for name, text := range tree {
		fsys[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	facts, err := hostfacts.Read(fsys)
	if err != nil {
		return nil, err
	}
	role := h.role
	if role == "" {
		role = tuning.DefaultRole(facts)
	}
	profile := tuning.Choose(facts, role)
	if h.profile != nil {
		profile = *h.profile
	}
	report, err := tuning.Audit(facts, profile, role, tuning.Options{})
	return report.Findings(), err
}

// follow makes what a finding advises, audits again, and returns each finding that is worse.
func (h host) follow(before []tuning.Finding, f tuning.Finding) (errs []error) {
	tree := maps.Clone(h.tree)
	for _, c := range f.Changes {
		if c.Kind == tuning.SetValue && tree[c.Path] == "" {
			tree[c.Path] = "\n" // an archive of a report may lack files that no rule reads
		}
		if err := tuningtest.Change(tree, c); err != nil {
			return []error{err}
		}
	}
	for _, e := range f.Edits {
		if err := edit(tree, e); err != nil {
			return []error{err}
		}
	}
	after, err := h.audit(tree)
	if err != nil {
		return []error{err}
	}
	old := severities(before)
	for key, severity := range severities(after) {
		was, known := old[key]
		if known && severity > was || !known && severity >= f.Severity {
			errs = append(errs, fmt.Errorf("the %s %q comes", severity, key))
		}
	}
	if s, still := severities(after)[f.Rule+" "+f.Where]; still && len(f.Edits) > 0 && len(f.Changes) == 0 &&
		s >= f.Severity && count(after, f) >= count(before, f) {
		errs = append(errs, fmt.Errorf("the finding stays"))
	}
	return errs
}

func count(all []tuning.Finding, like tuning.Finding) (n int) {
	for _, f := range all {
		n += number(f.Rule == like.Rule && f.Where == like.Where)
	}
	return n
}

// severities is the highest severity by rule and place.
func severities(all []tuning.Finding) map[string]tuning.Severity {
	out := map[string]tuning.Severity{}
	for _, f := range all {
		key := f.Rule + " " + f.Where
		out[key] = max(out[key], f.Severity)
	}
	return out
}
