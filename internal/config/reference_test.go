package config

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

const agentReference = "../../docs/reference/agent.md"

// key is one key of the agent's configuration, as the reference writes it: "batch.binds", and what it is by default;
// "" where that is nothing, which the reference says in words.
type key struct{ name, value string }

// keysOf walks a struct of the file by its tags. A struct that stands in two places is written once: [shapes.NAME] has
// the keys of [default_shape].
func keysOf(v reflect.Value, prefix string, seen map[reflect.Type]bool) []key {
	seen[v.Type()] = true
	var all []key
	for i := range v.NumField() {
		name, field := prefix+v.Type().Field(i).Tag.Get("toml"), v.Field(i)
		t := field.Type()
		switch {
		case t.Kind() == reflect.Struct:
			all = append(all, keysOf(field, name+".", seen)...)
		case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
			all = append(all, keysOf(reflect.Zero(t.Elem()), name+".", seen)...)
		case t.Kind() == reflect.Map && t.Elem().Kind() == reflect.Struct && !seen[t.Elem()]:
			all = append(all, keysOf(reflect.Zero(t.Elem()), name+".", seen)...)
		default:
			all = append(all, key{name, written(field, name)})
		}
	}
	return all
}

// written is a default as TOML has it, without the quotes of a text.
func written(v reflect.Value, name string) string {
	switch {
	case v.IsZero() && v.Kind() != reflect.Bool:
		return ""
	case name == "socket_mode":
		return fmt.Sprintf("0o%o", v.Int())
	case v.Kind() == reflect.Slice:
		return fmt.Sprintf(`["%s"]`, strings.Join(v.Interface().([]string), `", "`))
	}
	return fmt.Sprint(v.Interface())
}

var referenceRow = regexp.MustCompile("(?m)^\\| `([a-z_.]+)` \\| [^|]* \\| ([^|]*) \\|")

// TestReference holds the rows of docs/reference/agent.md equal to the keys that the agent reads, and the defaults
// there to those that it has.
func TestReference(t *testing.T) {
	text, err := os.ReadFile(agentReference)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for _, m := range referenceRow.FindAllStringSubmatch(string(text), -1) {
		if _, twice := rows[m[1]]; twice {
			t.Errorf("%s has two rows for %s", agentReference, m[1])
		}
		rows[m[1]] = strings.Trim(m[2], " `")
	}
	keys := keysOf(reflect.ValueOf(defaults()), "", map[reflect.Type]bool{})
	if len(keys) < 50 {
		t.Fatalf("only %d keys found in the code", len(keys))
	}
	for _, k := range keys {
		got, ok := rows[k.name]
		if !ok {
			t.Errorf("%s has no row for %s", agentReference, k.name)
		} else if k.value != "" && strings.Trim(got, `"`) != k.value {
			t.Errorf("%s says that %s is %s by default, and it is %s", agentReference, k.name, got, k.value)
		}
		delete(rows, k.name)
	}
	for name := range rows {
		t.Errorf("%s has a row for %s, which the agent does not read", agentReference, name)
	}
}
