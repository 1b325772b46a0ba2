package guest

import (
	"slices"
	"unicode/utf8"
)

// Raw holds the texts of a command that are not UTF-8, which JSON cannot carry in a string: file names of old data sets
// are in Latin-1, say. An older reader takes the strings beside it, in which U+FFFD replaces such bytes.
type Raw struct {
	Argv    [][]byte `json:"argv,omitempty"` // nil: the strings beside it are right
	Env     [][]byte `json:"env,omitempty"`
	Dir     []byte   `json:"dir,omitempty"`
	Targets [][]byte `json:"targets,omitempty"` // of bound directories
}

// RawOf returns the texts that are not UTF-8; nil: there are none.
func RawOf(argv, env []string, dir string, targets []string) *Raw {
	r := &Raw{Argv: rawList(argv), Env: rawList(env), Targets: rawList(targets)}
	if !utf8.ValidString(dir) {
		r.Dir = []byte(dir)
	}
	if r.Argv == nil && r.Env == nil && r.Dir == nil && r.Targets == nil {
		return nil
	}
	return r
}

func rawList(texts []string) (raw [][]byte) {
	if !slices.ContainsFunc(texts, func(s string) bool { return !utf8.ValidString(s) }) {
		return nil
	}
	for _, s := range texts {
		raw = append(raw, []byte(s))
	}
	return raw
}

// Restore puts the texts in the place of strings that came beside them. Lists of another length are left alone.
func (r *Raw) Restore(argv, env []string, dir *string, targets []*string) {
	if r == nil {
		return
	}
	restoreList(r.Argv, pointers(argv))
	restoreList(r.Env, pointers(env))
	restoreList(r.Targets, targets)
	if r.Dir != nil {
		*dir = string(r.Dir)
	}
}

func pointers(texts []string) (all []*string) {
	for i := range texts {
		all = append(all, &texts[i])
	}
	return all
}

func restoreList(raw [][]byte, texts []*string) {
	if len(raw) != len(texts) {
		return
	}
	for i, text := range raw {
		*texts[i] = string(text)
	}
}

// Encode notes what of the job JSON cannot carry.
func (j *Job) Encode() {
	var targets []string
	for _, b := range j.Binds {
		targets = append(targets, b.Target)
	}
	j.Raw = RawOf(j.Argv, j.Env, j.Dir, targets)
}

// Decode restores what Encode noted.
func (j *Job) Decode() {
	var targets []*string
	for i := range j.Binds {
		targets = append(targets, &j.Binds[i].Target)
	}
	j.Raw.Restore(j.Argv, j.Env, &j.Dir, targets)
	j.Raw = nil
}

// Encode notes what of the step JSON cannot carry.
func (s *Step) Encode() { s.Raw = RawOf(s.Argv, s.Env, s.Dir, nil) }

// Decode restores what Encode noted.
func (s *Step) Decode() {
	s.Raw.Restore(s.Argv, s.Env, &s.Dir, nil)
	s.Raw = nil
}
