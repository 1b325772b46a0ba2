// Package farmfile is the farm's declarative file, which `grange apply` brings, `grange diff` compares and `grange
// export` writes: it is parsed, written, validated, and compared with the farm as it is. It reads and changes nothing
// but its arguments.
package farmfile

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/stricttoml"
)

// maxSize bounds a farm file: a site of hundreds of cells and ten thousand users has less.
const maxSize = 8 << 20

// Parse reads a farm file; name stands for it in errors, which are of farm.CodeBadFarm. A kind of which the file has no
// table is nil: the file says nothing of it. What names what is not looked at, for it may be on the server alone.
func Parse(text []byte, name string) (farm.Farm, error) {
	if len(text) > maxSize {
		return farm.Farm{}, badFile(name, fmt.Sprintf("longer than %v", farm.Bytes(maxSize)))
	}
	var f file
	if err := stricttoml.Unmarshal(text, &f); err != nil {
		return farm.Farm{}, badFile(name, err.Error())
	}
	if err := f.mentioned(text); err != nil {
		return farm.Farm{}, badFile(name, err.Error())
	}
	out, err := f.farm()
	if err != nil {
		return farm.Farm{}, badTable(text, name, err)
	}
	return out, nil
}

func badFile(name, what string) *farm.Error {
	return &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadFarm, Message: name + ": " + what,
		Hint: "docs/guide/cells.md explains every key"}
}

// badTable returns an error about one table of the text with its line, and with the hint of the error.
func badTable(text []byte, name string, err error) error {
	message, in := err.Error(), new(tableError)
	if errors.As(err, &in) {
		if line := lineOf(text, in.at); line > 0 {
			message = fmt.Sprintf("line %d: %s", line, message)
		}
	}
	bad := badFile(name, message)
	if own, ok := errors.AsType[*farm.Error](err); ok && own.Hint != "" {
		bad.Hint = own.Hint
	}
	return bad
}

// tableError is an error about one table of a file.
type tableError struct {
	at  place
	err error
}

func (e *tableError) Error() string { return e.err.Error() }
func (e *tableError) Unwrap() error { return e.err }

// mentioned makes tables that are there and empty differ from those that are not: with --prune they say that there is
// nothing of a kind.
func (f *file) mentioned(text []byte) error {
	var top map[string]any
	if err := stricttoml.Unmarshal(text, &top); err != nil {
		return err
	}
	empty(top, "cells", &f.Cells)
	empty(top, "projects", &f.Projects)
	empty(top, "shapes", &f.Shapes)
	empty(top, "scores", &f.Scores)
	empty(top, "networks", &f.Networks)
	empty(top, "groups", &f.Groups)
	empty(top, "users", &f.Users)
	if _, ok := top["grants"]; ok && f.Grants == nil {
		f.Grants = []grantTable{}
	}
	if _, ok := top["mappings"]; ok && f.Mappings == nil {
		f.Mappings = []mappingTable{}
	}
	if _, ok := top["settings"]; ok && f.Settings == nil {
		f.Settings = &settingsTable{}
	}
	if _, ok := top["maxima"]; ok && f.Maxima == nil {
		f.Maxima = &maximaTable{}
	}
	return nil
}

func empty[T any](top map[string]any, key string, table *map[string]T) {
	if _, ok := top[key]; ok && *table == nil {
		*table = map[string]T{}
	}
}

// place is a table of the file: its kind, its name, and, of grants and mappings, which one it is.
type place struct {
	kind, name string
	nth        int
}

// lineOf returns the line on which a table begins; 0 where it cannot be told, as in one that is written inline.
func lineOf(text []byte, at place) int {
	plain := strings.NewReplacer(" ", "", "\t", "", "\r", "", `"`, "", "'", "")
	want, array := plain.Replace("["+at.kind+"."+at.name+"]"), false
	switch {
	case at.kind == "grants", at.kind == "mappings":
		want, array = "[["+at.kind+"]]", true
	case at.name == "":
		want = "[" + at.kind + "]"
	}
	seen := 0
	for i, line := range strings.Split(string(text), "\n") {
		header, _, _ := strings.Cut(line, "#")
		if plain.Replace(header) != want {
			continue
		}
		if !array || seen == at.nth {
			return i + 1
		}
		seen++
	}
	return 0
}

// farm returns the farm that the file describes. The error is a *tableError.
func (f file) farm() (out farm.Farm, err error) {
	var errs [11]error
	out.Settings, errs[0] = single("settings", f.Settings, settingsTable.settings)
	out.Maxima, errs[1] = single("maxima", f.Maxima, maximaTable.maxima)
	out.Cells, errs[2] = eachNamed("cells", f.Cells, cellTable.cell)
	out.Projects, errs[3] = eachNamed("projects", f.Projects, projectTable.project)
	out.Shapes, errs[4] = eachNamed("shapes", f.Shapes, shapeTable.shape)
	out.Networks, errs[5] = eachNamed("networks", f.Networks, networkTable.network)
	out.Users, errs[6] = eachNamed("users", f.Users, userTable.user)
	out.Groups, errs[7] = groups(f.Groups)
	out.Grants, errs[8] = grants(f.Grants)
	out.Mappings, errs[9] = mappings(f.Mappings)
	out.Scores, errs[10] = eachNamed("scores", f.Scores, scoreTable.score)
	return out, cmp.Or(errs[:]...)
}

// single converts a table that there is once; no table at all is nil.
func single[F, T any](kind string, table *F, convert func(F) (T, error)) (*T, error) {
	if table == nil {
		return nil, nil
	}
	t, err := convert(*table)
	if err != nil {
		return nil, &tableError{place{kind: kind}, err}
	}
	return &t, nil
}

// eachNamed converts tables in the order of their names; no table at all is nil.
func eachNamed[F, T any](kind string, tables map[string]F, convert func(F, string) (T, error)) ([]T, error) {
	if tables == nil {
		return nil, nil
	}
	list := []T{}
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		t, err := convert(tables[name], name)
		if err != nil {
			return nil, &tableError{place{kind: kind, name: name}, err}
		}
		list = append(list, t)
	}
	return list, nil
}

func groups(tables map[string]map[string]groupTable) ([]farm.ServerGroup, error) {
	if tables == nil {
		return nil, nil
	}
	list := []farm.ServerGroup{}
	for _, project := range slices.Sorted(maps.Keys(tables)) {
		for _, name := range slices.Sorted(maps.Keys(tables[project])) {
			affinity := farm.Affinity(tables[project][name].Affinity)
			g := farm.ServerGroup{Project: project, Name: name, Affinity: affinity}
			if err := g.Validate(); err != nil {
				return nil, &tableError{place{kind: "groups", name: project + "." + name}, err}
			}
			list = append(list, g)
		}
	}
	return list, nil
}

func grants(tables []grantTable) ([]farm.Grant, error) {
	if tables == nil {
		return nil, nil
	}
	list, seen := []farm.Grant{}, map[farm.Grant]bool{}
	for i, t := range tables {
		g := farm.Grant{User: t.User, Role: farm.Role(t.Role), Project: t.Project, Cell: t.Cell}
		err := g.Validate()
		if err == nil && seen[g] {
			err = fmt.Errorf("grant %v twice", g)
		}
		if err != nil {
			return nil, &tableError{place{kind: "grants", nth: i}, err}
		}
		seen[g] = true
		list = append(list, g)
	}
	return list, nil
}

func mappings(tables []mappingTable) ([]farm.Mapping, error) {
	if tables == nil {
		return nil, nil
	}
	list, seen := []farm.Mapping{}, map[farm.Mapping]bool{}
	for i, t := range tables {
		m := farm.Mapping{Issuer: t.Issuer, Claim: t.Claim, Value: t.Value, Role: farm.Role(t.Role), Project: t.Project,
			Cell: t.Cell}
		err := m.Validate()
		if err == nil && seen[m] {
			err = fmt.Errorf("mapping %v twice", m)
		}
		if err != nil {
			return nil, &tableError{place{kind: "mappings", nth: i}, err}
		}
		seen[m] = true
		list = append(list, m)
	}
	return list, nil
}
