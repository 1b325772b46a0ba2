// Command sbom checks the lists of what programs consist of that `make sbom` writes, CycloneDX in JSON, against what
// Go's linker wrote into the programs: every module, its version, Go's library, and nothing else; and nothing that
// differs from one run to the next.
package main

import (
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: sbom BIN DIST PROGRAM...")
		os.Exit(2)
	}
	for _, name := range os.Args[3:] {
		list := filepath.Join(os.Args[2], name+".cdx.json")
		n, err := checkFile(filepath.Join(os.Args[1], name), list)
		if err != nil {
			fmt.Fprintf(os.Stderr, "sbom: %s: %v\n", list, err)
			os.Exit(1)
		}
		fmt.Printf("%s: %d modules, as in %s\n", list, n, name)
	}
}

// bom is what we read of a list.
type bom struct {
	BOMFormat    string
	SerialNumber string
	Metadata     struct {
		Timestamp string
		Component struct{ Name string }
	}
	Components []struct{ Name, Version string }
}

func checkFile(program, list string) (modules int, err error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return 0, err
	}
	text, err := os.ReadFile(list)
	if err != nil {
		return 0, err
	}
	var b bom
	if err := json.Unmarshal(text, &b); err != nil {
		return 0, err
	}
	return len(b.Components), check(info, b)
}

// check compares a list with a program's own.
func check(info *buildinfo.BuildInfo, b bom) error {
	var wrong []error
	switch {
	case b.BOMFormat != "CycloneDX":
		wrong = append(wrong, fmt.Errorf("format %q", b.BOMFormat))
	case b.Metadata.Component.Name != info.Main.Path:
		wrong = append(wrong, fmt.Errorf("it is about %q, not %s", b.Metadata.Component.Name, info.Main.Path))
	case b.SerialNumber != "" || b.Metadata.Timestamp != "":
		wrong = append(wrong, errors.New("it has a serial number or a time: the same build would give another file"))
	}
	want := map[string]string{"std": info.GoVersion}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		want[m.Path] = m.Version
	}
	for _, c := range b.Components {
		if version, ok := want[c.Name]; !ok || version != c.Version {
			wrong = append(wrong, fmt.Errorf("%s %s is not in the program", c.Name, c.Version))
			continue
		}
		delete(want, c.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		wrong = append(wrong, fmt.Errorf("%s %s is missing", name, want[name]))
	}
	return errors.Join(wrong...)
}
