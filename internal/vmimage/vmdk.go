package vmimage

import (
	"fmt"
	"io"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/lazyregexp"
)

// named are lines of a VMDK's description that name a file: an extent, or the disk that it builds on.
var named = lazyregexp.New(`(?m)^(?:(?:RW|RDONLY|NOACCESS) .*|parentFileNameHint *= *)"([^"\n]+)"`)

// extents tells which files a VMDK names, for people who wonder why it was not converted; "": none are found.
func extents(r io.ReaderAt, size int64) string {
	const most, shown = 64 << 10, 3
	text := make([]byte, min(size, most))
	n, _ := r.ReadAt(text, 0)
	var files []string
	for _, m := range named.FindAllSubmatch(text[:n], shown) {
		files = append(files, fmt.Sprintf("%.200q", farm.Printable(string(m[1]))))
	}
	if len(files) == 0 {
		return ""
	}
	return ": it names the files " + strings.Join(files, ", ")
}
