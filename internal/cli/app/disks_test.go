package app

import (
	"encoding/json"
	"testing"

	"github.com/spf13/pflag"
)

// TestDiskFlags: what is said goes over the wire, also where it is the usual; what is not said does not.
func TestDiskFlags(t *testing.T) {
	for _, c := range []struct {
		args          []string
		scratch, want string
	}{
		{nil, "null", "null"},
		{[]string{"--scratch", "1G"}, "1073741824", "{}"},
		{[]string{"--scratch", "1G,file"}, "1073741824", `{"scratch_on":"file"}`},
		{[]string{"--scratch", "0"}, "0", "{}"},
		{[]string{"--scratch", "/data=1G,thin", "--scratch", "1M,tmpfs"}, "1048576",
			`{"scratch_on":"tmpfs","volumes":[{"path":"/data","size":1073741824,"on":"thin"}]}`},
		{[]string{"--disk", "1G,raw"}, "null", `{"root":1073741824,"root_mode":"raw"}`},
		{[]string{"--disk", "overlay"}, "null", `{"root_mode":"overlay"}`},
		{[]string{"--swap", "0", "--memory-peak", "1G"}, "null", `{"swap":0,"memory_peak":1073741824}`},
		{[]string{"--scratch", "1G", "--scratch", "2G"}, "", ""},
		{[]string{"--scratch", "/data"}, "", ""},
		{[]string{"--disk", "rawer"}, "", ""},
	} {
		var f DiskFlags
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		f.Register(flags)
		if err := flags.Parse(c.args); err != nil {
			t.Fatal(err)
		}
		scratch, disks, err := f.Read()
		if c.want == "" {
			if err == nil {
				t.Errorf("%q is taken", c.args)
			}
			continue
		}
		gotScratch, _ := json.Marshal(scratch)
		got, _ := json.Marshal(disks)
		if err != nil || string(gotScratch) != c.scratch || string(got) != c.want {
			t.Errorf("%q: scratch %s, disks %s, %v; want %s and %s", c.args, gotScratch, got, err, c.scratch, c.want)
		}
	}
}
