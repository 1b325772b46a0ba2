package main

import (
	"io/fs"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/procstat"
)

// stuck are processes that wait inside the kernel where no signal reaches them, as for a disk that does not answer: by
// number and name, each with the kernel's functions that it waits in. Tests that wait for such a process cannot say so.
func stuck(proc fs.FS) map[string]string {
	all := map[string]string{}
	entries, _ := fs.ReadDir(proc, ".")
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		text, err := fs.ReadFile(proc, e.Name()+"/stat")
		if err != nil {
			continue // it has ended
		}
		if procstat.Parse(text).Field(3) != "D" {
			continue
		}
		name, _ := fs.ReadFile(proc, e.Name()+"/comm")
		stack, _ := fs.ReadFile(proc, e.Name()+"/stack")
		all[e.Name()+" "+strings.TrimSpace(string(name))] = strings.Join(strings.Fields(string(stack)), " ")
	}
	return all
}
