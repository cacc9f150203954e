package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
)

func main() {
	for number := 0; number < 3; number++ {
		answer, err := http.Get(fmt.Sprintf("%s/page?%d", os.Args[2], number))
		if err != nil {
			panic(err)
		}
		text, _ := io.ReadAll(answer.Body)
		fmt.Print(answer.Status, " ", string(text))
	}
}
