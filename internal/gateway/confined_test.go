package gateway

import (
	"reflect"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// TestConfinedRefusesPaths calls every request that carries a name with one that climbs. A request that a later go-fuse
// adds fails here until confined.go refuses it.
func TestConfinedRefusesPaths(t *testing.T) {
	guard := confined{fuse.NewDefaultRawFileSystem()}
	for m := range reflect.TypeFor[fuse.RawFileSystem]().Methods() {
		method, _ := reflect.TypeOf(guard).MethodByName(m.Name)
		named := false
		args := []reflect.Value{reflect.ValueOf(guard)}
		for i := 1; i < method.Type.NumIn(); i++ {
			in := reflect.Zero(method.Type.In(i))
			if in.Kind() == reflect.String {
				named, in = true, reflect.ValueOf("../x")
			}
			args = append(args, in)
		}
		if !named || m.Name == "GetXAttr" || m.Name == "SetXAttr" || m.Name == "RemoveXAttr" { // names of attributes
			continue
		}
		out := method.Func.Call(args)
		if status := out[len(out)-1].Interface().(fuse.Status); status != errName {
			t.Errorf("%s lets %q through: %v", m.Name, "../x", status)
		}
	}
}
