package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

var (
	// registered is a route as agents register it.
	registered = regexp.MustCompile(`"((?:GET|POST|PUT|PATCH|DELETE) /v1/[^"]*)"`)
	// variable parts of a path: {vm} of a pattern, VM of a page.
	variablePart = regexp.MustCompile(`(?:/(?:\{[^/]*\}|[A-Z][A-Z-]*))+`)
)

// routes are those of agents and of servers.
func routes(root string, c code) (map[string]bool, error) {
	all := map[string]bool{}
	for _, m := range registered.FindAllStringSubmatch(c.text, -1) {
		all[route(m[1])] = true
	}
	text, err := os.ReadFile(filepath.Join(root, "docs/reference/openapi.json"))
	if err != nil {
		return nil, err
	}
	var api struct {
		Paths map[string]map[string]json.RawMessage
	}
	err = json.Unmarshal(text, &api)
	for path, methods := range api.Paths {
		for method := range methods {
			all[route(strings.ToUpper(method)+" "+path)] = true
		}
	}
	return all, err
}

// route is a method and a path without a query. * stands for variables, several in a row as well: {key...} is such.
func route(text string) string {
	text, _, _ = strings.Cut(text, "?")
	return variablePart.ReplaceAllString(text, "/*")
}
