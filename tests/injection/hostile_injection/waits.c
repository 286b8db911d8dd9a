// Waits for its end. A set-user-ID copy of it is what others execute.
#include <unistd.h>

int main(void) {
    for (;;)
        pause();
}
