package stricttoml

import (
	"strings"
	"testing"
)

func TestUnmarshal(t *testing.T) {
	type table struct {
		Name string           `toml:"name"`
		Sub  map[string]table `toml:"sub"`
	}
	var v table
	if err := Unmarshal([]byte("name = \"a\"\n[sub.b]\nname = \"c\"\n"), &v); err != nil || v.Name != "a" ||
		v.Sub["b"].Name != "c" {
		t.Errorf("%+v, %v", v, err)
	}
	for text, says := range map[string]string{
		"name = \"a\"\n[sub.b]\nnmae = \"c\"": `line 3: unknown key "sub.b.nmae"`,
		"name = \"a\"\nname = 3":              "line 2, column ",
		"name = ":                             "line 1, column ",
	} {
		if err := Unmarshal([]byte(text), new(table)); err == nil || !strings.HasPrefix(err.Error(), says) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
}
