package report

import (
	_ "embed"
	"html/template"
	"io"

	"github.com/grange-project/grange/internal/farm"
)

//go:embed page.html
var pageText string

// HTML writes the report as one page that needs nothing else: no script, no font, no picture from anywhere.
func HTML(w io.Writer, r Report) error {
	t, err := template.New("page").Funcs(template.FuncMap{
		"words": words, "figures": figures, "size": func(n uint64) string { return farm.Bytes(n).Rounded().String() },
	}).Parse(pageText)
	if err != nil {
		return err
	}
	return t.Execute(w, r)
}
