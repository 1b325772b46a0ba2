// Command sbom writes the lists of what programs consist of, SPDX 2.3 in JSON, and checks them and those that `make
// sbom` has written as CycloneDX against what Go's linker wrote into the programs: every module, its version, Go's
// library, and nothing else; and nothing that differs from one run to the next.
package main

import (
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

func main() {
	version := flag.String("version", "", "`VERSION` of the programs")
	flag.Parse()
	if flag.NArg() < 3 || *version == "" {
		fmt.Fprintln(os.Stderr, "usage: sbom -version VERSION BIN DIST PROGRAM...")
		os.Exit(2)
	}
	if err := run(*version, flag.Arg(0), flag.Arg(1), flag.Args()[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(version, bin, dist string, programs []string) error {
	epoch, err := strconv.ParseInt(cmp.Or(os.Getenv("SOURCE_DATE_EPOCH"), "0"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	for _, name := range programs {
		program, list := filepath.Join(bin, name), filepath.Join(dist, name)
		if err := writeSPDX(program, name, version, list+spdxSuffix, time.Unix(epoch, 0)); err != nil {
			return err
		}
		n, err := checkFile(program, list)
		if err != nil {
			return fmt.Errorf("%s: %w", list, err)
		}
		fmt.Printf("%s.cdx.json, %[1]s%s: %d modules, as in %s\n", list, spdxSuffix, n, name)
	}
	return nil
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
	content, err := os.ReadFile(program)
	if err != nil {
		return 0, err
	}
	var b bom
	var d spdx
	if err := errors.Join(readJSON(list+".cdx.json", &b), readJSON(list+spdxSuffix, &d)); err != nil {
		return 0, err
	}
	return len(b.Components), errors.Join(check(info, b), checkSPDX(info, content, d))
}

func readJSON(name string, to any) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, to)
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
	want := map[string]string{}
	for _, m := range modules(info) {
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
