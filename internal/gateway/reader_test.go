package gateway

import (
	"reflect"
	"slices"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// harmless are the file requests that change nothing. A request that a later go-fuse adds fails this test until someone
// says here that it is harmless, or refuses it in reader.go.
var harmless = []string{
	"String", "SetDebug", "Init", "OnUnmount", "Lookup", "Forget", "GetAttr", "Readlink", "Access", "GetXAttr",
	"ListXAttr",
	"Read", "Lseek", "GetLk", "SetLk", "SetLkw", "Release", "Flush", "Fsync", "OpenDir", "ReadDir", "ReadDirPlus",
	"ReleaseDir", "FsyncDir", "StatFs", "Statx",
}

func TestReaderRefusesWhateverChangesFiles(t *testing.T) {
	all := reflect.TypeFor[fuse.RawFileSystem]()
	guard := reader{fuse.NewDefaultRawFileSystem()}
	for m := range all.Methods() {
		if slices.Contains(harmless, m.Name) {
			continue
		}
		// The request asks for writing, so that Open is refused as well.
		args := []reflect.Value{reflect.ValueOf(guard)}
		method, _ := reflect.TypeOf(guard).MethodByName(m.Name)
		for i := 1; i < method.Type.NumIn(); i++ {
			in := reflect.Zero(method.Type.In(i))
			if open, ok := in.Interface().(*fuse.OpenIn); ok && open == nil {
				in = reflect.ValueOf(&fuse.OpenIn{Flags: 1})
			}
			args = append(args, in)
		}
		out := method.Func.Call(args)
		if status := out[len(out)-1].Interface().(fuse.Status); status != errReadOnly {
			t.Errorf("%s is let through a read-only bind: %v", m.Name, status)
		}
	}
}
