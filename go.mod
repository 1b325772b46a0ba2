module github.com/grange-project/grange

go 1.26
